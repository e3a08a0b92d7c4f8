#include "tools/report/html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/escape.h"

/* The stream knows of its own failures only; there is one page a process. */
static bool lacks_memory;

void html_lacks_memory(void) { lacks_memory = true; }

bool html_is_whole(FILE *out) { return !ferror(out) && !lacks_memory; }

static void put_list(FILE *out, const char *format, va_list list) HTML_PRINTF(2, 0);
static void put_list(FILE *out, const char *format, va_list list) {
  char *text;
  if (vasprintf(&text, format, list) < 0) {
    html_lacks_memory();
    return;
  }
  escape_text(out, text);
  free(text);
}

void html_text(FILE *out, const char *format, ...) {
  va_list list;
  va_start(list, format);
  put_list(out, format, list);
  va_end(list);
}

void html_element(FILE *out, const char *tag, const char *class, const char *format, ...) {
  va_list list;
  if (class)
    fprintf(out, "<%s class=\"%s\">", tag, class);
  else
    fprintf(out, "<%s>", tag);
  va_start(list, format);
  put_list(out, format, list);
  va_end(list);
  fprintf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
}

void html_table_begin(FILE *out, const char *class) {
  fprintf(out, "<div class=\"wide\"><table class=\"%s\">\n", class);
}

void html_table_end(FILE *out) { fputs("</tbody></table></div>\n", out); }

void html_titles(FILE *out, const char *const *titles) {
  fputs("<thead><tr>", out);
  for (; *titles; titles++) {
    bool number = **titles == '#';
    html_element(out, "th scope=\"col\"", number ? "num" : NULL, "%s", *titles + number);
  }
  fputs("</tr></thead><tbody>\n", out);
}

void html_base64(FILE *out, const unsigned char *bytes, size_t size) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < size; i += 3) {
    unsigned group = (unsigned)bytes[i] << 16;
    if (i + 1 < size) group |= (unsigned)bytes[i + 1] << 8;
    if (i + 2 < size) group |= bytes[i + 2];
    fputc(digits[group >> 18], out);
    fputc(digits[group >> 12 & 63], out);
    fputc(i + 1 < size ? digits[group >> 6 & 63] : '=', out);
    fputc(i + 2 < size ? digits[group & 63] : '=', out);
  }
}
