#include "tools/train/command_text.h"

#include <string.h>

#include "tools/common/command_line.h"
#include "tools/common/memory_text.h"

void command_print_word(FILE *out, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,@%";
  if (*word && strspn(word, plain) == strlen(word)) {
    fputs(word, out);
    return;
  }
  fputc('\'', out);
  for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, out);
  fputc('\'', out);
}

char *command_text(int argc, char **argv) {
  static const char hidden[] = ".libs/";
  struct memory_text stream;
  FILE *out = memory_text_begin(&stream);
  if (!out) return strdup("");
  const char *folder = strstr(argv[0], hidden);
  if (folder)
    fprintf(out, "%.*s%s", (int)(folder - argv[0]), argv[0], program_name(argv[0]));
  else
    command_print_word(out, argv[0]);
  for (int i = 1; i < argc; i++) {
    fputc(' ', out);
    command_print_word(out, argv[i]);
  }
  char *text = memory_text_end(&stream, NULL);
  return text ? text : strdup("");
}
