/* Lines of text for a language model. As in training, the first input is a line end, and each word
 * is the target of the words before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/predict/byte_stream.h"
#include "tools/predict/failure.h"
#include "tools/predict/text_lines.h"

struct lines {
  struct engine *engine;
  const struct text_options *options;
  const struct sl_vocabulary *vocabulary;
  const char *path, *name;
  int64_t index;
  int32_t *tokens; /* of the line */
  int64_t count;
  bool ended;
};

static int bad(const struct lines *l, const char *why) {
  return fail(EXIT_FAILED, "%s: line %lld %s", l->name, (long long)l->index + 1, why);
}

/* ---- a line's tokens ---- */

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
  enum sl_status status = sl_vocabulary_encode(l->vocabulary, line, length, &l->tokens, &l->count);
  return status == SL_OK ? EXIT_DONE : fail_library(status);
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

/* With a vocabulary the inputs begin with a line end, and the targets end with the line's own one,
 * if it has one. */
static void fill(const struct lines *l, struct request *request) {
  int32_t *inputs = request->inputs, end = 0;
  bool words = l->vocabulary != NULL;
  size_t bytes = (size_t)l->count * sizeof *inputs;
  if (words)
    end = sl_vocabulary_level(l->vocabulary) == SL_TEXT_WORD
              ? sl_vocabulary_find(l->vocabulary, "<eos>", 5)
              : sl_vocabulary_find(l->vocabulary, "\n", 1);
  if (words) inputs[0] = end;
  memcpy(inputs + words, l->tokens, bytes);
  memcpy(request->targets, l->tokens + !words, bytes - (words ? 0 : sizeof *inputs));
  if (words) request->targets[l->count] = end;
  request->tokens = l->count + words;
  request->scored = words ? l->count + l->ended : l->count - 1;
  request->unknown = 0;
  for (int64_t i = 0; words && i < l->count; i++) request->unknown += l->tokens[i] == 0;
}

static int send(struct lines *l, struct request_queue *queue) {
  int64_t steps = l->count + (l->vocabulary != NULL);
  if (steps > MOST_STEPS) return bad(l, "has more than 65536 tokens");
  if (l->engine->longest && steps > l->engine->longest)
    return fail(EXIT_FAILED, "%s: line %lld has %lld tokens%s, but the model takes at most %lld",
                l->name, (long long)l->index + 1, (long long)steps,
                l->vocabulary ? " with its line end" : "", (long long)l->engine->longest);
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

int send_lines(struct engine *engine, const struct text_options *options,
               const struct sl_vocabulary *vocabulary, const char *path,
               struct request_queue *queue) {
  struct lines l = {.engine = engine, .options = options, .vocabulary = vocabulary, .path = path};
  struct stream *stream = stream_open(path);
  int code = stream ? EXIT_DONE : EXIT_FAILED;
  const char *line;
  size_t length;
  if (stream) l.name = stream_name(stream);
  while (code == EXIT_DONE) {
    if (!stream_line(stream, &line, &length, &l.ended)) code = EXIT_FAILED;
    if (code != EXIT_DONE || !line) break;
    code = vocabulary ? read_words(&l, line, length) : read_numbers(&l, line, length);
    if (code == EXIT_DONE) code = send(&l, queue);
    free(l.tokens);
    l.tokens = NULL;
  }
  if (code == EXIT_DONE && !l.index) code = fail(EXIT_FAILED, "%s: is empty", l.name);
  stream_close(stream);
  return code;
}
