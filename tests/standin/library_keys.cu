/* Which combinations of types, layouts and algorithms the libraries were asked for: a line each, in
 * the file that SL_STANDIN_KEYS names. Part of the stand-in for a GPU, which only tests use. */
#include <stdio.h>
#include <stdlib.h>

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

} /* namespace sl_standin */
