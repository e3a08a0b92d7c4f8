/* What the stand-ins for cuBLASLt and cuDNN have in common. Which combinations of types, layouts
 * and algorithms they were asked for: a line each, in the file that SL_STANDIN_KEYS names. And
 * failures that tests plant. Part of the stand-in for a GPU, which only tests use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>

namespace sl_standin {

/* Appends a key that is new to this process; at once, since a process may end by a signal. */
void note_library_key(const char *key) {
  static std::mutex mutex;
  static std::set<std::string> known;
  static const char *path = getenv("SL_STANDIN_KEYS");
  if (!path) return;
  std::lock_guard<std::mutex> lock(mutex);
  if (!known.insert(key).second) return;
  FILE *file = fopen(path, "a");
  if (!file || fprintf(file, "%s\n", key) < 0 || fclose(file))
    fprintf(stderr, "stand-in: SL_STANDIN_KEYS=%s cannot be written\n", path);
}

/* SL_STANDIN_STATUS=FUNCTION=STATUS: its first call only, as if the failure passed. */
int planted_status(const char *function) {
  static const char *plant = getenv("SL_STANDIN_STATUS");
  static std::atomic<bool> given{false};
  size_t length = strlen(function);
  if (!plant || strncmp(plant, function, length) || plant[length] != '=' || given.exchange(true))
    return 0;
  return (int)strtol(plant + length + 1, nullptr, 10);
}

} /* namespace sl_standin */
