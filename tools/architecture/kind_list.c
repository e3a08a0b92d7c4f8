/* --list: what an architecture file may have. The library's tables of kinds have the texts. */
#include <stdio.h>
#include <string.h>

#include "tools/architecture/architecture.h"

static const char common[] =
    "Every layer has these keys:\n"
    "  name            of the layer; its parameters are NAME.weight and so on; required\n"
    "  kind            one of those below; required\n"
    "  inputs          list of names of layers before it, or \"input\"; the layer before\n"
    "  init            initial weights: default, xavier, he, uniform, zero, normal; --init\n"
    "  deviation       of init normal's weights, such as 0.02\n"
    "  group           a name that layers share which are placed together; none\n"
    "  shares          dense: the layer whose weight this one takes; none\n\n"
    "Kinds of layers, with the shapes of a sample, their keys, and behind the semicolon what "
    "holds\n"
    "without the key:\n";

/* "kernel_h: height of the window; required" in two columns. */
static void print_key(const char *line, int length) {
  int key = (int)strcspn(line, ":");
  const char *text = line + key + 2;
  printf("    %-13.*s %.*s\n", key, line, length - key - 2, text);
}

void kind_list_print(void) {
  struct sl_kind kind;
  fputs(common, stdout);
  for (int i = 0; (kind = sl_kind(i)).name; i++) {
    printf("\n  %-15s %s\n", kind.name, kind.about);
    for (const char *line = kind.keys; *line;) {
      size_t length = strcspn(line, "\n");
      print_key(line, (int)length);
      line += length + 1;
    }
  }
}
