/* NumPy's .npy format, versions 1 to 3 (https://numpy.org/doc/stable/reference/generated/
 * numpy.lib.format.html): "\x93NUMPY", two bytes of version, the header's length (16 bits, from
 * version 2 on 32 bits, little-endian), the header, which is a literal of a Python dictionary, and
 * the elements. */
#include "data/npy.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

struct header {
  const char *path;
  const char *at, *end;
};

static enum sl_status damaged(const struct header *h, const char *what) {
  return sl__fail(SL_BAD_FILE, "%s: damaged: %s in its NumPy header", h->path, what);
}

static void skip_blanks(struct header *h) {
  while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) h->at++;
}

/* Takes one character behind blanks, if it is there. */
static bool take(struct header *h, char c) {
  skip_blanks(h);
  if (h->at == h->end || *h->at != c) return false;
  h->at++;
  return true;
}

static bool take_word(struct header *h, const char *word) {
  size_t length = strlen(word);
  skip_blanks(h);
  if ((size_t)(h->end - h->at) < length || memcmp(h->at, word, length) != 0) return false;
  h->at += length;
  return true;
}

/* A string in single or double quotes, into text of `size` bytes. */
static enum sl_status read_string(struct header *h, char *text, size_t size) {
  char quote = take(h, '\'') ? '\'' : take(h, '"') ? '"' : '\0';
  size_t length = 0;
  if (!quote) return damaged(h, "there is no string where one should be");
  for (; h->at < h->end && *h->at != quote; h->at++) {
    if (length + 1 == size) return damaged(h, "a string is too long");
    text[length++] = *h->at;
  }
  if (h->at == h->end) return damaged(h, "a string does not end");
  h->at++;
  text[length] = '\0';
  return SL_OK;
}

/* "<f4": the order of bytes (< little-endian, > big-endian, | one byte), the kind, the size. */
static enum sl_status read_element(struct header *h, struct sl__element *element) {
  char text[16] = "";
  skip_blanks(h);
  if (h->at < h->end && *h->at == '[')
    return sl__fail(SL_BAD_FILE,
                    "%s: its elements are records; save the columns as an array of numbers",
                    h->path);
  enum sl_status status = read_string(h, text, sizeof text);
  if (status != SL_OK) return status;
  bool ordered = text[0] == '<' || text[0] == '>' || text[0] == '|';
  if (ordered && text[1] && text[2] >= '1' && text[2] <= '9' && !text[3]) {
    *element = (struct sl__element){text[1], text[2] - '0', text[0] == '>'};
    if (sl__element_exists(element)) return SL_OK;
  }
  return sl__fail(SL_BAD_FILE,
                  "%s: its elements are \"%s\"; f2, f4, f8, i1 to i8, u1 to u8 and b1 can be read: "
                  "convert it with numpy's astype",
                  h->path, text);
}

static enum sl_status read_length(struct header *h, int64_t *length) {
  const char *first;
  skip_blanks(h);
  *length = 0;
  for (first = h->at; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
    if (__builtin_mul_overflow(*length, 10, length) ||
        __builtin_add_overflow(*length, *h->at - '0', length))
      return damaged(h, "an axis is too long");
  if (h->at == first) return damaged(h, "there is no number where one should be");
  if (h->at < h->end && *h->at == 'L') h->at++; /* a long integer of Python 2 */
  return SL_OK;
}

/* "(100, 8)", "(100,)" */
static enum sl_status read_shape(struct header *h, struct sl__npy *npy) {
  if (!take(h, '(')) return damaged(h, "there is no shape");
  for (npy->ndim = 0; !take(h, ')'); npy->ndim++) {
    if (npy->ndim && !take(h, ',')) return damaged(h, "no comma in the shape");
    if (npy->ndim && take(h, ')')) break;
    if (npy->ndim == SL_MAX_DIMS)
      return sl__fail(SL_BAD_FILE, "%s: has more than %d axes; reshape it", h->path, SL_MAX_DIMS);
    enum sl_status status = read_length(h, &npy->dim[npy->ndim]);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL_KEYS = 7 };

/* One entry of the dictionary, without the comma behind it; sets its bit in *seen. */
static enum sl_status read_entry(struct header *h, struct sl__npy *npy, int *seen) {
  char key[32];
  enum sl_status status = read_string(h, key, sizeof key);
  if (status != SL_OK) return status;
  if (!take(h, ':')) return damaged(h, "no colon behind a key");
  if (!strcmp(key, "descr")) {
    *seen |= DESCR;
    return read_element(h, &npy->element);
  }
  if (!strcmp(key, "shape")) {
    *seen |= SHAPE;
    return read_shape(h, npy);
  }
  if (strcmp(key, "fortran_order") != 0) return damaged(h, "an unknown key");
  *seen |= ORDER;
  npy->fortran = take_word(h, "True");
  return npy->fortran || take_word(h, "False") ? SL_OK : damaged(h, "neither True nor False");
}

static enum sl_status read_dictionary(struct header *h, struct sl__npy *npy) {
  int seen = 0;
  if (!take(h, '{')) return damaged(h, "no brace");
  while (!take(h, '}')) {
    enum sl_status status = read_entry(h, npy, &seen);
    if (status != SL_OK) return status;
    if (take(h, ',')) continue;
    if (!take(h, '}')) return damaged(h, "no comma behind an entry");
    break;
  }
  skip_blanks(h);
  if (h->at < h->end) return damaged(h, "more than a dictionary");
  return seen == ALL_KEYS ? SL_OK : damaged(h, "descr, fortran_order or shape is missing");
}

/* The bytes behind the header must be the elements that it promises. */
static enum sl_status check_size(const char *path, const struct sl__npy *npy, size_t size) {
  size_t whole = (size_t)npy->element.size, each = whole;
  for (int i = 0; i < npy->ndim; i++) {
    if (npy->dim[i] == 0) return sl__fail(SL_BAD_FILE, "%s: is empty: axis %d is 0 long", path, i);
    if (__builtin_mul_overflow(whole, (size_t)npy->dim[i], &whole))
      return sl__fail(SL_BAD_FILE, "%s: damaged: its header promises more than any file can hold",
                      path);
    if (i) each *= (size_t)npy->dim[i];
  }
  if (npy->ndim == 0)
    return sl__fail(SL_BAD_FILE, "%s: holds one number; its first axis must count samples", path);
  if (size < whole)
    return sl__fail(SL_BAD_FILE, "%s: cut short after row %zu of %lld; was the copy complete?",
                    path, npy->fortran ? 0 : size / each, (long long)npy->dim[0]);
  if (size > whole)
    return sl__fail(SL_BAD_FILE, "%s: %zu bytes too many at the end; is it the right file?", path,
                    size - whole);
  return SL_OK;
}

enum sl_status sl__npy_parse(const char *path, const uint8_t *bytes, size_t size,
                             struct sl__npy *npy) {
  enum { MAGIC = 6, SHORT = MAGIC + 2 + 2, LONG = MAGIC + 2 + 4 };
  static const char magic[] = "\x93NUMPY";
  if (size < SHORT || memcmp(bytes, magic, MAGIC) != 0)
    return sl__fail(SL_BAD_FILE, "%s: is no NumPy array (.npy)", path);
  unsigned version = bytes[MAGIC];
  if (version < 1 || version > 3)
    return sl__fail(SL_BAD_FILE, "%s: has version %u of NumPy's format; 1 to 3 can be read", path,
                    version);
  size_t begin = version == 1 ? SHORT : LONG, length = bytes[8] | (size_t)bytes[9] << 8;
  if (version > 1 && size >= LONG) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  if (size < begin || length > size - begin)
    return sl__fail(SL_BAD_FILE, "%s: cut short in its header; was the copy complete?", path);
  struct header header = {path, (const char *)bytes + begin, (const char *)bytes + begin + length};
  *npy = (struct sl__npy){.values = bytes + begin + length};
  enum sl_status status = read_dictionary(&header, npy);
  return status == SL_OK ? check_size(path, npy, size - begin - length) : status;
}
