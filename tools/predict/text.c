/* Lines of text for a language model: as in training, a line's first input is a line's end, and
 * each word is the target of what stands before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/predict/predict.h"

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

/* Room for the inputs and outputs of so many steps, and the padding. */
static bool room_for(struct slot *slot, int64_t steps, int64_t words) {
  size_t bytes = (size_t)steps * sizeof(int32_t);
  if (!slot->origins) slot->origins = malloc(sizeof *slot->origins);
  if (!slot->origins) return false;
  if (slot->room < bytes) {
    free(slot->inputs);
    free(slot->targets);
    free(slot->outputs);
    slot->inputs = malloc(bytes);
    slot->targets = malloc(bytes);
    slot->outputs = malloc((size_t)(steps * words) * sizeof(float));
    slot->room = slot->inputs && slot->targets && slot->outputs ? bytes : 0;
    if (!slot->room) return false;
  }
  memset(slot->inputs, 0, bytes);
  return true;
}

/* With a vocabulary a line's end comes first, and last, where it is there. */
static void fill(const struct lines *l, struct slot *slot) {
  int32_t *inputs = slot->inputs, end = 0;
  bool words = l->vocabulary != NULL;
  size_t bytes = (size_t)l->count * sizeof *inputs;
  if (words)
    end = sl_vocabulary_level(l->vocabulary) == SL_TEXT_WORD
              ? sl_vocabulary_find(l->vocabulary, "<eos>", 5)
              : sl_vocabulary_find(l->vocabulary, "\n", 1);
  if (words) inputs[0] = end;
  memcpy(inputs + words, l->tokens, bytes);
  memcpy(slot->targets, l->tokens + !words, bytes - (words ? 0 : sizeof *inputs));
  if (words) slot->targets[l->count] = end;
  slot->tokens = l->count + words;
  slot->scored = words ? l->count + l->ended : l->count - 1;
  slot->unknown = 0;
  for (int64_t i = 0; words && i < l->count; i++) slot->unknown += l->tokens[i] == 0;
}

static int send(struct lines *l, struct flow *flow) {
  int64_t steps = l->count + (l->vocabulary != NULL);
  if (steps > MOST_STEPS) return bad(l, "has more than 65536 tokens");
  struct sl_predictor *predictor = engine_for(l->engine, &steps);
  if (!predictor) return EXIT_FAILED;
  struct slot *slot = flow_slot(flow, (size_t)(steps * l->engine->words) * sizeof(float));
  if (!slot) return EXIT_FAILED_QUIETLY;
  slot->predictor = predictor;
  if (!room_for(slot, steps, l->engine->words)) return fail_memory();
  fill(l, slot);
  if (slot->unknown && l->options->strict)
    return bad(l, "has a word outside the vocabulary (--strict)");
  slot->n = 1;
  *slot->origins = (struct origin){l->path, l->index++, -1};
  return flow_send(flow, slot) ? EXIT_DONE : EXIT_FAILED;
}

int text_run(struct engine *engine, const struct text_options *options,
             const struct sl_vocabulary *vocabulary, const char *path, struct flow *flow) {
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
    if (code == EXIT_DONE) code = send(&l, flow);
    free(l.tokens);
    l.tokens = NULL;
  }
  if (code == EXIT_DONE && !l.index) code = fail(EXIT_FAILED, "%s: is empty", l.name);
  stream_close(stream);
  return code;
}
