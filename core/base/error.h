/* Failures: sl__fail() writes the thread's message and returns the status. */
#ifndef SL_CORE_BASE_ERROR_H
#define SL_CORE_BASE_ERROR_H

#include <starling/base.h>

/* return sl__fail(SL_BAD_FILE, "%s: image %zu of %zu is cut short; was the download complete?",
 * path, i, n); */
enum sl_status sl__fail(enum sl_status status, const char *format, ...) SL_PRINTF(2, 3);

/* The status that a function of the program's returned; SL_BAD_ARGUMENT for a number that is no
 * status. */
static inline enum sl_status sl__known_status(enum sl_status status) {
  return *sl_status_name(status) == '?' ? SL_BAD_ARGUMENT : status;
}

/* All memory comes from these functions, so that tests can make the n-th allocation fail. They
 * set the message; the caller returns SL_NO_MEMORY. */
void *sl__alloc(size_t count, size_t size, const char *what);
char *sl__strdup(const char *text);
/* The same for large memory that is filled at once: asks the system for large pages, whose first
 * use takes a fraction of the time. */
void *sl__alloc_large(size_t count, size_t size, const char *what);
/* realloc to count elements; NULL (and a message) when there is no memory, the old block stays. */
void *sl__realloc(void *block, size_t count, size_t size, const char *what);

/* Make the n-th next allocation of this thread fail (1: the next one); 0 switches that off. */
void sl__alloc_fail_after(long n);

/* Begins a public function: where an argument is NULL that must not be, the function returns
 * SL_BAD_ARGUMENT, or `result`, and the message names it. SL__NEEDS(model, options); */
#define SL__NEEDS(...) SL__NEEDS_OR(SL_BAD_ARGUMENT, __VA_ARGS__)
#define SL__NEEDS_OR(result, ...)                                                                  \
  do {                                                                                             \
    const void *const needed_[] = {__VA_ARGS__};                                                   \
    if (!sl__are_given(needed_, sizeof needed_ / sizeof *needed_, __func__, #__VA_ARGS__))         \
      return result;                                                                               \
  } while (0)
/* names: of the arguments, separated by ", ". */
bool sl__are_given(const void *const *arguments, size_t count, const char *function,
                   const char *names);

/* Goes to `out` if the call fails: SL__TRY(sl_model_build(model)); needs `status` and the label
 * `out`. */
#define SL__TRY(call)                                                                              \
  do {                                                                                             \
    status = (call);                                                                               \
    if (status != SL_OK) goto out;                                                                 \
  } while (0)

#endif
