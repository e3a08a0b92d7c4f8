#include "tools/train/text_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GENERATED_SENTENCES = 20000, GENERATED_TEST_SENTENCES = 2000 };

/* The end of the line that `at` is in, or of the text. */
static size_t line_end(const char *text, size_t size, size_t at) {
  while (at < size && (!at || text[at - 1] != '\n')) at++;
  return at < size ? at : size;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The end of the word that `at` is in; of one longer than a tenth of the rest, as in a text
 * without blanks, of the character (UTF-8). */
static size_t word_end(const char *text, size_t size, size_t at) {
  size_t end = at, most = at + (size - at) / 10;
  while (end < most && !is_blank(text[end])) end++;
  if (end < most) return end + 1;
  while (at < size && (text[at] & 0xC0) == 0x80) at++;
  return at;
}

/* Nine tenths are for training, the next twentieth for validation; the last twentieth is not used.
 * They end with a line, or with a word where the last tenth is one line, as of a text of one line.
 */
static void split(const char *text, size_t size, struct text_parts *parts) {
  size_t most = size / 10 * 9, first = line_end(text, size, most);
  bool one_line = first == size && most > 0;
  if (one_line) first = word_end(text, size, most);
  size_t second = (one_line ? word_end : line_end)(text, size, first + size / 20);
  parts->train = (struct text_part){"the text, training part", text, first};
  parts->valid = (struct text_part){"the text, validation part", text + first, second - first};
}

static enum sl_status generate(uint64_t seed, struct text_parts *parts) {
  struct text_part *train = &parts->train, *valid = &parts->valid;
  *train = (struct text_part){.name = "generated sentences, training set"};
  *valid = (struct text_part){.name = "generated sentences, validation set"};
  enum sl_status status = sl_grammar_new(seed, true, GENERATED_SENTENCES, &parts->memory[0],
                                         &train->size, &parts->entropy);
  if (status == SL_OK)
    status = sl_grammar_new(seed, false, GENERATED_TEST_SENTENCES, &parts->memory[1], &valid->size,
                            NULL);
  train->text = parts->memory[0];
  valid->text = parts->memory[1];
  return status;
}

enum sl_status text_parts_open(const struct cli *cli, struct text_parts *parts) {
  size_t size;
  *parts = (struct text_parts){0};
  if (!strcmp(cli->data, "grammar")) return generate(cli->seed, parts);
  enum sl_status status = sl_text_read(cli->data, &parts->memory[0], &size);
  if (status == SL_OK) split(parts->memory[0], size, parts);
  return status;
}

void text_parts_close(struct text_parts *parts) {
  free(parts->memory[0]);
  free(parts->memory[1]);
  *parts = (struct text_parts){0};
}

bool path_names_folder(const char *path) {
  struct stat info;
  size_t length = strlen(path);
  return (length && path[length - 1] == '/') || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

static const char *path_beside(const char *weights, const char *name, char *path, size_t size) {
  size_t length = strlen(weights);
  const char *between = !path_names_folder(weights) ? "." : weights[length - 1] == '/' ? "" : "/";
  snprintf(path, size, "%s%s%s.json", weights, between, name);
  return path;
}
const char *vocabulary_path(const char *weights, char *path, size_t size) {
  return path_beside(weights, "vocabulary", path, size);
}
const char *tokenizer_path(const char *weights, char *path, size_t size) {
  return path_beside(weights, "tokenizer", path, size);
}
