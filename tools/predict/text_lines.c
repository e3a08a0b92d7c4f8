/* Lines of text for a language model. As in training, the first input is a line end, and each word
 * is the target of the words before it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/predict/byte_stream.h"
#include "tools/predict/failure.h"
#include "tools/predict/text_lines.h"

/* ---- words ---- */

/* A file of --vocabulary that is no vocabulary may be a tokenizer. */
static enum sl_status open_either(const char *path, struct words *words) {
  char why[1200];
  enum sl_status status = sl_vocabulary_load(path, &words->vocabulary);
  if (status != SL_BAD_FILE) return status;
  snprintf(why, sizeof why, "%s", sl_error());
  status = sl_tokenizer_open(path, &words->tokenizer);
  if (status == SL_BAD_FILE) fail(EXIT_FAILED, "%s", why); /* the first message is the one told */
  return status;
}

/* That of --vocabulary, else what is beside the model. */
static enum sl_status open_words(const struct text_options *options, const char *model, char *path,
                                 struct words *words) {
  snprintf(path, PATH_MAX, "%s", options->vocabulary ? options->vocabulary : "");
  if (*path) return open_either(path, words);
  snprintf(path, PATH_MAX, "%s.tokenizer.json", model);
  if (access(path, F_OK) == 0) return sl_tokenizer_open(path, &words->tokenizer);
  snprintf(path, PATH_MAX, "%s.vocabulary.json", model);
  return sl_vocabulary_load(path, &words->vocabulary);
}

/* The token of a line's end; -1: lines are numbers, and have none. */
static int32_t line_end(const struct words *words) {
  if (words->tokenizer) return sl_tokenizer_find(words->tokenizer, "\n", 1);
  if (!words->vocabulary) return -1;
  return sl_vocabulary_level(words->vocabulary) == SL_TEXT_WORD
             ? sl_vocabulary_find(words->vocabulary, "<eos>", 5)
             : sl_vocabulary_find(words->vocabulary, "\n", 1);
}

int words_open(const struct text_options *options, const struct engine *engine,
               struct words *words) {
  const char *model = engine->options->model;
  char path[PATH_MAX];
  if (options->tokens) return EXIT_DONE;
  enum sl_status status = open_words(options, model, path, words);
  if (status == SL_IO && !options->vocabulary)
    return fail(EXIT_FAILED,
                "%s, and there is no %s.tokenizer.json; --vocabulary names the model's words or "
                "its tokenizer, --format tokens does without",
                sl_error(), model);
  if (status != SL_OK) return fail_library(status);
  if (words->tokenizer && line_end(words) < 0)
    return fail(EXIT_FAILED, "%s: has no token for the end of a line; give --format tokens", path);
  int64_t size = words->tokenizer ? sl_tokenizer_size(words->tokenizer)
                                  : sl_vocabulary_size(words->vocabulary);
  /* a model may have rows that its tokenizer does not use */
  if (size == engine->words || (words->tokenizer && size < engine->words)) return EXIT_DONE;
  return fail(EXIT_FAILED, "%s: has %lld %s, but the model %s has %lld; are they of one training?",
              path, (long long)size, words->tokenizer ? "tokens" : "words", model,
              (long long)engine->words);
}

void words_close(struct words *words) {
  sl_vocabulary_free(words->vocabulary);
  sl_tokenizer_close(words->tokenizer);
  *words = (struct words){0};
}

/* ---- a line's tokens ---- */

struct lines {
  struct engine *engine;
  const struct text_options *options;
  const struct words *words;
  int32_t end; /* the token of a line's end; -1: none */
  const char *path, *name;
  int64_t index;
  int32_t *tokens; /* of the line, its end among them */
  int64_t count;
  bool ended;
};

static int bad(const struct lines *l, const char *why) {
  return fail(EXIT_FAILED, "%s: line %lld %s", l->name, (long long)l->index + 1, why);
}

/* "3 17 4" */
static int read_numbers(struct lines *l, const char *line, size_t length) {
  int64_t words = l->engine->words;
  const char *end = line + length;
  l->tokens = malloc((length / 2 + 1) * sizeof *l->tokens);
  if (!l->tokens) return fail_memory();
  for (l->count = 0; line < end; l->count++) {
    int64_t value = 0;
    while (line < end && (*line == ' ' || *line == '\t' || *line == '\r')) line++;
    if (line == end) break;
    const char *first = line;
    for (; line < end && *line >= '0' && *line <= '9'; line++)
      if (value < words) value = 10 * value + *line - '0';
    if (value >= words)
      return fail(EXIT_FAILED,
                  "%s: line %lld: token %.*s is outside the vocabulary: it has 0 to %lld", l->name,
                  (long long)l->index + 1, (int)(line - first), first, (long long)words - 1);
    if (line == first || (line < end && !strchr(" \t\r", *line)))
      return bad(l, "is no list of token numbers");
    l->tokens[l->count] = (int32_t)value;
  }
  return l->count ? EXIT_DONE : bad(l, "is empty: it has no token");
}

static int read_words(struct lines *l, const char *line, size_t length) {
  if (memchr(line, 0, length)) return bad(l, "has zero bytes; is it a text?");
  enum sl_status status =
      l->words->tokenizer
          ? sl_tokenizer_encode(l->words->tokenizer, line, length, true, &l->tokens, &l->count)
          : sl_vocabulary_encode(l->words->vocabulary, line, length, &l->tokens, &l->count);
  if (status != SL_OK) return fail_library(status);
  if (!l->ended) return EXIT_DONE;
  int32_t *longer = realloc(l->tokens, (size_t)(l->count + 1) * sizeof *longer);
  if (!longer) return fail_memory();
  l->tokens = longer;
  l->tokens[l->count++] = l->end;
  return EXIT_DONE;
}

/* ---- a line's request ---- */

/* Allocates inputs, targets and outputs of that many steps, and clears the inputs: the padding. */
static bool room_for(struct request *request, int64_t steps, int64_t words) {
  size_t bytes = (size_t)steps * sizeof(int32_t);
  if (!request->origins) request->origins = malloc(sizeof *request->origins);
  if (!request->origins) return false;
  if (request->room < bytes) {
    free(request->inputs);
    free(request->targets);
    free(request->outputs);
    request->inputs = malloc(bytes);
    request->targets = malloc(bytes);
    request->outputs = malloc((size_t)(steps * words) * sizeof(float));
    request->room = request->inputs && request->targets && request->outputs ? bytes : 0;
    if (!request->room) return false;
  }
  memset(request->inputs, 0, bytes);
  return true;
}

/* How many tokens of the line are inputs: its end is a target alone. */
static int64_t inputs_of(const struct lines *l) { return l->count - (l->end >= 0 && l->ended); }

/* Of text the inputs begin with a line end. Of numbers the first one is an input alone. */
static void fill(const struct lines *l, struct request *request) {
  int32_t *inputs = request->inputs;
  bool text = l->end >= 0;
  if (text) inputs[0] = l->end;
  memcpy(inputs + text, l->tokens, (size_t)inputs_of(l) * sizeof *inputs);
  request->tokens = inputs_of(l) + text;
  request->scored = l->count - !text;
  memcpy(request->targets, l->tokens + !text, (size_t)request->scored * sizeof *inputs);
  request->unknown = 0;
  for (int64_t i = 0; l->words->vocabulary && i < inputs_of(l); i++)
    request->unknown += l->tokens[i] == 0;
}

static int send(struct lines *l, struct request_queue *queue) {
  int64_t steps = inputs_of(l) + (l->end >= 0);
  if (steps > MOST_STEPS) return bad(l, "has more than 65536 tokens");
  if (l->engine->longest && steps > l->engine->longest)
    return fail(EXIT_FAILED, "%s: line %lld has %lld tokens%s, but the model takes at most %lld",
                l->name, (long long)l->index + 1, (long long)steps,
                l->end >= 0 ? " with its line end" : "", (long long)l->engine->longest);
  struct sl_predictor *predictor = engine_for(l->engine, &steps);
  if (!predictor) return EXIT_FAILED;
  struct request *request =
      request_queue_take(queue, (size_t)(steps * l->engine->words) * sizeof(float));
  if (!request) return EXIT_FAILED_QUIETLY;
  request->predictor = predictor;
  if (!room_for(request, steps, l->engine->words)) return fail_memory();
  fill(l, request);
  if (request->unknown && l->options->strict)
    return bad(l, "has a word outside the vocabulary (--strict)");
  request->n = 1;
  *request->origins = (struct origin){l->path, l->index++, -1};
  return request_queue_send(queue, request) ? EXIT_DONE : EXIT_FAILED;
}

int send_lines(struct engine *engine, const struct text_options *options, const struct words *words,
               const char *path, struct request_queue *queue) {
  struct lines l = {
      .engine = engine, .options = options, .words = words, .end = line_end(words), .path = path};
  struct stream *stream = stream_open(path);
  int code = stream ? EXIT_DONE : EXIT_FAILED;
  const char *line;
  size_t length;
  if (stream) l.name = stream_name(stream);
  while (code == EXIT_DONE) {
    if (!stream_line(stream, &line, &length, &l.ended)) code = EXIT_FAILED;
    if (code != EXIT_DONE || !line) break;
    code = l.end >= 0 ? read_words(&l, line, length) : read_numbers(&l, line, length);
    if (code == EXIT_DONE) code = send(&l, queue);
    free(l.tokens);
    l.tokens = NULL;
  }
  if (code == EXIT_DONE && !l.index) code = fail(EXIT_FAILED, "%s: is empty", l.name);
  stream_close(stream);
  return code;
}
