#include "tools/common/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The code point that text begins with, and its bytes; 0 for what is no UTF-8 (RFC 3629: no
 * surrogates, nothing longer than it must be). */
static uint32_t decode(const unsigned char *text, size_t *length) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t count = text[0] < 0x80   ? 1
                 : text[0] < 0xc0 ? 0
                 : text[0] < 0xe0 ? 2
                 : text[0] < 0xf0 ? 3
                                  : 4;
  uint32_t code = count < 2 ? text[0] : text[0] & (0xffu >> (count + 1));
  *length = 1;
  if (!count || text[0] > 0xf4) return 0;
  for (size_t i = 1; i < count; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0; /* the end of the text is none, either */
    code = code << 6 | (text[i] & 0x3fu);
  }
  if (code < least[count] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
  *length = count;
  return code;
}

static bool is_harmless(uint32_t code) {
  if (code < ' ' || (code >= 0x7f && code < 0xa0)) return false; /* control characters */
  if ((code & 0xfffe) == 0xfffe || (code >= 0xfdd0 && code <= 0xfdef)) return false;
  return !(code >= 0x200e && code <= 0x200f) && !(code >= 0x2028 && code <= 0x202e) &&
         !(code >= 0x2066 && code <= 0x2069);
}

void escape_text(FILE *out, const char *text) {
  size_t length;
  for (; *text; text += length) {
    uint32_t code = decode((const unsigned char *)text, &length);
    switch (code) {
      case '&': fputs("&amp;", out); break;
      case '<': fputs("&lt;", out); break;
      case '>': fputs("&gt;", out); break;
      case '"': fputs("&quot;", out); break;
      case '\'': fputs("&#39;", out); break;
      default:
        if (is_harmless(code))
          fwrite(text, 1, length, out);
        else
          fputs("\xef\xbf\xbd", out);
    }
  }
}
