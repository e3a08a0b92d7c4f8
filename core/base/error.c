#include "core/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/numbers.h"

static __thread char message[1024];
static __thread long fail_countdown;

/* A message is one line, whatever a file's names and fields have in them. */
static void make_printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

enum sl_status sl__fail(enum sl_status status, const char *format, ...) {
  char text[sizeof message]; /* a part of the new message may be the old one */
  va_list list;
  locale_t before = sl__locale_begin();
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  sl__locale_end(before);
  make_printable(text);
  memcpy(message, text, sizeof message);
  return status;
}

const char *sl_error(void) { return message; }

const char *sl_status_name(enum sl_status status) {
  static const char *const names[] = {
#define SL__STATUS_NAME(name, text) #name,
      SL_STATUS_MAP(SL__STATUS_NAME)
#undef SL__STATUS_NAME
  };
  if ((size_t)status >= sizeof names / sizeof *names) return "?";
  return names[status];
}

bool sl__are_given(const void *const *arguments, size_t count, const char *function,
                   const char *names) {
  for (size_t i = 0; i < count; i++) {
    size_t length = strcspn(names, ",");
    if (!arguments[i]) {
      sl__fail(SL_BAD_ARGUMENT, "%s: the argument '%.*s' is NULL", function, (int)length, names);
      return false;
    }
    names += length + strspn(names + length, ", ");
  }
  return true;
}

static bool must_fail(void) { return fail_countdown > 0 && --fail_countdown == 0; }

void sl__alloc_fail_after(long n) { fail_countdown = n; }

void *sl__alloc(size_t count, size_t size, const char *what) {
  void *block = must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1);
  if (!block) sl__fail(SL_NO_MEMORY, "no memory for %zu x %zu bytes (%s)", count, size, what);
  return block;
}

void *sl__alloc_large(size_t count, size_t size, const char *what) {
  static const uintptr_t page = 1 << 21;
  void *block = sl__alloc(count, size, what);
  uintptr_t first = ((uintptr_t)block + page - 1) / page * page;
  uintptr_t end = ((uintptr_t)block + count * size) / page * page;
  /* a hint: if the system ignores it, nothing changes */
  if (block && end > first) madvise((void *)first, end - first, MADV_HUGEPAGE);
  return block;
}

char *sl__strdup(const char *text) {
  size_t length = strlen(text) + 1;
  char *copy = sl__alloc(length, 1, "a name");
  return copy ? memcpy(copy, text, length) : NULL;
}

void *sl__realloc(void *block, size_t count, size_t size, const char *what) {
  size_t bytes;
  void *grown = NULL;
  if (!__builtin_mul_overflow(count ? count : 1, size, &bytes) && !must_fail())
    grown = realloc(block, bytes);
  if (!grown) sl__fail(SL_NO_MEMORY, "no memory for %zu x %zu bytes (%s)", count, size, what);
  return grown;
}
