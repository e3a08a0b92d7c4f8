/* starling-predict's lines of text, for a vocabulary or a tokenizer, or of token numbers (by the
 * first byte), up to the requests that they become. Engine and queue are stand-ins: there is no
 * model. */
#include "tests/fuzz/fuzz.h"
#include "tools/predict/failure.h"
#include "tools/predict/text_lines.h"

enum { WORDS = 300 };

struct request_queue {
  struct request request;
};

/* The next power of two. */
struct sl_predictor *engine_for(struct engine *engine, int64_t *steps) {
  int64_t length = 8;
  while (length < *steps) length *= 2;
  *steps = length;
  return (struct sl_predictor *)engine; /* only handed on */
}

struct request *request_queue_take(struct request_queue *queue, size_t bytes) {
  const size_t most = 1 << 24; /* a test's memory */
  return bytes < most ? &queue->request : NULL;
}

bool request_queue_send(struct request_queue *queue, struct request *request) {
  const int32_t *inputs = request->inputs;
  if (request != &queue->request || request->tokens < 1) abort();
  if (request->scored < 0 || request->scored > request->tokens) abort();
  for (int64_t i = 0; i < request->tokens; i++)
    if (inputs[i] < 0 || inputs[i] >= WORDS) abort();
  for (int64_t i = 0; i < request->scored; i++)
    if (request->targets[i] < 0 || request->targets[i] >= WORDS) abort();
  return true;
}

static const char text[] = "the cat sat on the mat\nthe dog ran\nabc xyz\n";

static struct sl_vocabulary *small_vocabulary(enum sl_text_level level) {
  static struct sl_vocabulary *made[2];
  struct sl_vocabulary **v = &made[level == SL_TEXT_CHAR];
  if (!*v && sl_vocabulary_new(level, text, strlen(text), 0, WORDS, v) != SL_OK) abort();
  return *v;
}

static struct sl_tokenizer *small_tokenizer(void) {
  static struct sl_tokenizer *made;
  const struct sl_tokenizer_options options = {.size = WORDS};
  const char *texts[] = {text};
  const size_t sizes[] = {strlen(text)};
  if (!made && sl_tokenizer_train(&options, texts, sizes, 1, &made) != SL_OK) abort();
  return made;
}

FUZZER(lines)(const uint8_t *bytes, size_t size) {
  uint8_t head;
  fuzz_take(&bytes, &size, &head, 1);
  const struct text_options options = {.tokens = head % 3 == 0, .strict = head & 64};
  struct engine engine = {.tokens = true, .words = WORDS};
  struct request_queue queue = {0};
  struct words words = {0};
  if (head % 3 && head & 128)
    words.tokenizer = small_tokenizer();
  else if (head % 3)
    words.vocabulary = small_vocabulary(head % 3 == 1 ? SL_TEXT_WORD : SL_TEXT_CHAR);
  send_lines(&engine, &options, &words, fuzz_file(0, bytes, size), &queue);
  free(queue.request.origins);
  free(queue.request.inputs);
  free(queue.request.targets);
  free(queue.request.outputs);
  return 0;
}
