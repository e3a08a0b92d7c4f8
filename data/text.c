/* Text files. */
#include <stdlib.h>
#include <string.h>

#include <starling/text.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/dataset.h"

#define MAX_FILE ((size_t)4 << 30)

enum sl_status sl_text_level_parse(const char *name, enum sl_text_level *level) {
  SL__NEEDS(name, level);
  if (!strcmp(name, "word"))
    *level = SL_TEXT_WORD;
  else if (!strcmp(name, "char"))
    *level = SL_TEXT_CHAR;
  else
    return sl__fail(SL_BAD_ARGUMENT, "text level '%s' is unknown; use word or char", name);
  return SL_OK;
}

enum sl_status sl_text_read(const char *path, char **text, size_t *size) {
  SL__NEEDS(path, text, size);
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t length = 0;
  SL__TRY(sl__file_read(path, MAX_FILE, &bytes, &length));
  if (length == 0) SL__TRY(sl__fail(SL_BAD_FILE, "%s: is empty; was it written?", path));
  const uint8_t *zero = memchr(bytes, 0, length);
  if (zero && sl__is_token_file(bytes, length))
    SL__TRY(sl__fail(SL_BAD_FILE,
                     "%s: is a token file, not a text; gpt and lstm_lm train on such files", path));
  if (zero)
    SL__TRY(sl__fail(SL_BAD_FILE,
                     "%s: has a zero at byte %zu, so it is no text; convert UTF-16 to UTF-8", path,
                     (size_t)(zero - bytes)));
  *text = (char *)bytes;
  *size = length;
  bytes = NULL;
out:
  free(bytes);
  return status;
}
