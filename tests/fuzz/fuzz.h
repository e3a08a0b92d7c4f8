/* A fuzzer is one function, FUZZER(name)(bytes, size), in fuzz_NAME.c, with a row in fuzzers.def
 * and a folder of seeds in corpus. "make fuzz" makes a program of each with clang's libFuzzer;
 * test_fuzz_corpus calls all of them on their seeds. */
#ifndef SL_TESTS_FUZZ_FUZZ_H
#define SL_TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef SL_FUZZER
#define FUZZER(name) int LLVMFuzzerTestOneInput
#else
#define FUZZER(name) int fuzz_##name
#endif

/* The path of a file with these bytes, in memory, for readers that open one. place: 0 to 2, for
 * readers of several. Valid until the next call for this place. */
static inline const char *fuzz_file(int place, const uint8_t *bytes, size_t size) {
  static int files[3] = {-1, -1, -1};
  static char paths[3][32];
  if (files[place] < 0) {
    files[place] = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(paths[place], sizeof paths[place], "/proc/self/fd/%d", files[place]);
  }
  if (files[place] < 0 || ftruncate(files[place], 0) != 0 ||
      pwrite(files[place], bytes, size, 0) != (ssize_t)size)
    abort();
  return paths[place];
}

/* The bytes as a text, without its zero bytes; the caller frees it. */
static inline char *fuzz_text(const uint8_t *bytes, size_t size) {
  char *text = malloc(size + 1), *to = text;
  if (!text) abort();
  for (size_t i = 0; i < size; i++)
    if (bytes[i]) *to++ = (char)bytes[i];
  *to = '\0';
  return text;
}

/* Copies `size` bytes from the front, zeros where there are none, and takes them away. */
static inline void fuzz_take(const uint8_t **bytes, size_t *left, void *to, size_t size) {
  size_t given = *left < size ? *left : size;
  memset(to, 0, size);
  if (given) memcpy(to, *bytes, given);
  *bytes += given;
  *left -= given;
}

#endif
