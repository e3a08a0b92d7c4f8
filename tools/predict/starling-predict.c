/* starling-predict: what a saved model says to pictures, numbers or lines of text. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/abort_message.h"
#include "tools/predict/predict.h"

enum {
  KEY_FORMAT = 256,
  KEY_RESIZE,
  KEY_INVERT,
  KEY_NORMALIZE,
  KEY_MEAN,
  KEY_DEVIATION,
  KEY_LABELS,
  KEY_TRAIN,
  KEY_SEED,
  KEY_VOCABULARY,
  KEY_STRICT,
  KEY_TOP,
  KEY_LOGITS,
  KEY_DEVICES,
  KEY_PLACEMENT,
  KEY_MATH,
  KEY_MAX_BATCH,
  KEY_MAX_DELAY,
  KEY_BATCHES,
  KEY_BENCH,
  KEY_CONCURRENCY,
  KEY_BATCH,
  KEY_SECONDS,
  KEY_JSON
};

#define HEADER(text, number)                                                                       \
  { .doc = text, .group = number }

static const struct argp_option options[] = {
    HEADER("Inputs:", 1),
    {"format", KEY_FORMAT, "NAME", 0,
     "What the inputs are: idx, cifar10, pnm, png, raw (f32 values as the model takes them, of "
     "this "
     "machine's byte order), text, tokens (lines of token numbers); default: as their first bytes "
     "say",
     1},
    {"resize", KEY_RESIZE, "NAME", OPTION_ARG_OPTIONAL,
     "Pictures of another size, or grey instead of colour, are made to fit: bilinear (default), "
     "box",
     1},
    {"invert", KEY_INVERT, NULL, 0, "Black becomes white: for digits drawn in black on white", 1},
    {"normalize", KEY_NORMALIZE, "NAME", 0,
     "How the training made its inputs of bytes: mnist, cifar10, none (0 to 1); default: as the "
     "model says",
     1},
    {"mean", KEY_MEAN, "LIST", 0,
     "Instead of --normalize: means of values from 0 to 1, one for all channels or one each", 1},
    {"deviation", KEY_DEVIATION, "LIST", 0, "With --mean: the values' standard deviations", 1},
    {"labels", KEY_LABELS, "FILE", 0,
     "Labels of the one IDX file (default: beside it, labels-idx1 for images-idx3)", 1},
    {"train", KEY_TRAIN, NULL, 0,
     "Of folders, digits and shapes take the training set, not the test set", 1},
    {"seed", KEY_SEED, "N", 0, "Seed of generated digits and shapes (default 1)", 1},
    {"vocabulary", KEY_VOCABULARY, "FILE", 0,
     "Words of a language model (default: MODEL.vocabulary.json, which lstm_lm --save writes)", 1},
    {"strict", KEY_STRICT, NULL, 0,
     "A word outside the vocabulary is an error (default: it is <unk>, and counted)", 1},

    HEADER("Output:", 2),
    {"top", KEY_TOP, "K", 0, "The K likeliest classes or next tokens (default 3; 0: none)", 2},
    {"logits", KEY_LOGITS, NULL, 0, "The model's raw output, too", 2},
    {"quiet", 'q', NULL, 0, "No summary at the end", 2},

    HEADER("Devices:", 3),
    {"devices", KEY_DEVICES, "LIST", 0,
     "cpu, cpu:0,cpu:1, cuda:0,cpu, gpu-or-cpu (default: all that StarPU finds)", 3},
    {"placement", KEY_PLACEMENT, "TEXT", 0,
     "Which layers run where, as a trainer's: 'conv1,conv2=cpu:0;fc1-2=cpu:1'", 3},
    {"math", KEY_MATH, "NAME", 0, "f32 (default), tf32, bf16, as in training", 3},
    {"max-batch", KEY_MAX_BATCH, "N", 0, "Samples run together at the most (default 64)", 3},
    {"max-delay-us", KEY_MAX_DELAY, "N", 0,
     "A batch that is not full waits so long for more (default 0)", 3},
    {"batches", KEY_BATCHES, "N", 0, "Batches under way at once (default: two a worker)", 3},

    HEADER("Measuring:", 4),
    {"bench", KEY_BENCH, NULL, 0, "Latency and throughput on random input, no INPUT", 4},
    {"concurrency", KEY_CONCURRENCY, "N", 0, "Clients that ask at once (default 1)", 4},
    {"batch", KEY_BATCH, "N", 0, "Samples of each request (default 1)", 4},
    {"seconds", KEY_SECONDS, "S", 0, "So long, after a warm-up (default 3)", 4},
    {"json", KEY_JSON, NULL, 0, "One JSON object instead of a table", 4},
    {0}};

static const char about[] =
    "Let a saved model classify pictures, or tell how likely lines of text are and how they go on."
    "\v"
    "MODEL is what a trainer's --save lenet.json wrote, or an ONNX file, lenet.onnx, which does "
    "not "
    "say how its inputs were normalised or what its classes are called. INPUT: IDX images "
    "(MNIST's), CIFAR-10's "
    "binary files, PGM, PPM, PNG, each plain or gzip; a folder with MNIST's or CIFAR-10's files; "
    "digits, shapes (generated ones, shapes in colour); text for a language model, line by line; - "
    "is standard input.\n\n"
    "Output is a JSON line a sample, in the inputs' order: class, probability, the likeliest "
    "classes, the label where the input has one. For a line of text: its tokens (a line end is "
    "one), their log-likelihood (natural), the perplexity, and the likeliest next tokens. A "
    "summary "
    "goes to the error stream.\n\n"
    "Exit status: 0 done; 1 a file cannot be read, is damaged or does not fit the model; 2 bad "
    "usage.\n\n"
    "Examples:\n"
    "  lenet --data mnist --save lenet.json\n"
    "  starling-predict lenet.json mnist/t10k-images-idx3-ubyte.gz > answers.jsonl\n"
    "  starling-predict --resize --invert lenet.json digit.png\n"
    "  echo 'the old farmer' | starling-predict lm.json -\n"
    "  starling-predict --bench --concurrency 8 lenet.json";

/* ---- failures ---- */

int fail(int code, const char *format, ...) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool said;
  va_list list;
  va_start(list, format);
  pthread_mutex_lock(&lock);
  if (!said) {
    fprintf(stderr, "starling-predict: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
  }
  said = true;
  aborted_told();
  pthread_mutex_unlock(&lock);
  va_end(list);
  return code;
}

int fail_library(enum sl_status status) {
  return fail(status == SL_BAD_ARGUMENT ? EXIT_USAGE : EXIT_FAILED, "%s", sl_error());
}

int fail_memory(void) { return fail(EXIT_FAILED, "no memory is left"); }

/* ---- the command line ---- */

static int64_t read_whole(const struct argp_state *state, const char *option, const char *text,
                          int64_t least, int64_t most) {
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  int64_t value = strtoll(text, NULL, 10);
  if (!digits || text[digits] || errno || value < least || value > most)
    argp_failure(state, EXIT_USAGE, 0, "%s '%s': must be a whole number from %lld to %lld", option,
                 text, (long long)least, (long long)most);
  return value;
}

static double read_real(const struct argp_state *state, const char *option, const char *text,
                        double least, double most) {
  char *end;
  double value = strtod(text, &end);
  if (!*text || strspn(text, "0123456789+-.eE") != strlen(text) || *end ||
      !(value >= least && value <= most))
    argp_failure(state, EXIT_USAGE, 0, "%s '%s': must be a number from %g to %g", option, text,
                 least, most);
  return value;
}

/* "0.5" or "0.4,0.5,0.6" */
static void read_numbers(const struct argp_state *state, const char *option, const char *text,
                         struct numbers *numbers) {
  char copy[128], *rest = copy;
  snprintf(copy, sizeof copy, "%s", text);
  numbers->count = 0;
  for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
    if (numbers->count == 3)
      argp_failure(state, EXIT_USAGE, 0, "%s '%s': one number, or three", option, text);
    numbers->value[numbers->count++] = (float)read_real(state, option, item, -1e6, 1e6);
  }
}

static int read_name(const struct argp_state *state, const char *option, const char *text,
                     const char *const *names, const char *known) {
  for (int i = 0; names[i]; i++)
    if (!strcmp(names[i], text)) return i;
  argp_failure(state, EXIT_USAGE, 0, "%s '%s': unknown; use %s", option, text, known);
  return -1;
}

static void read_format(const struct argp_state *state, const char *text, struct program *p) {
  static const char *const names[] = {"auto", "idx",  "cifar10", "pnm", "png",
                                      "raw",  "text", "tokens",  NULL};
  p->images.format = (enum format)read_name(state, "--format", text, names,
                                            "idx, cifar10, pnm, png, raw, text, tokens or auto");
  p->text.tokens = p->images.format == FORMAT_TOKENS;
}

static bool parse_inputs(int key, char *text, struct program *p, const struct argp_state *state) {
  static const char *const filters[] = {"bilinear", "box", NULL};
  static const char *const kinds[] = {"mnist", "cifar10", "none", NULL};
  switch (key) {
    case KEY_FORMAT: read_format(state, text, p); break;
    case KEY_RESIZE:
      p->images.preparation.resize =
          RESIZE_BILINEAR +
          (text ? read_name(state, "--resize", text, filters, "bilinear or box") : 0);
      break;
    case KEY_INVERT: p->images.preparation.invert = true; break;
    case KEY_NORMALIZE:
      p->normalize = kinds[read_name(state, "--normalize", text, kinds, "mnist, cifar10 or none")];
      break;
    case KEY_MEAN: read_numbers(state, "--mean", text, &p->mean); break;
    case KEY_DEVIATION:
      read_numbers(state, "--deviation", text, &p->deviation);
      for (int i = 0; i < p->deviation.count; i++)
        if (p->deviation.value[i] == 0)
          argp_failure(state, EXIT_USAGE, 0, "--deviation '%s': must not be 0", text);
      break;
    case KEY_LABELS: p->images.labels = text; break;
    case KEY_TRAIN: p->images.train = true; break;
    case KEY_SEED:
      p->images.seed = (uint64_t)read_whole(state, "--seed", text, 0, INT64_MAX);
      break;
    case KEY_VOCABULARY: p->text.vocabulary = text; break;
    case KEY_STRICT: p->text.strict = true; break;
    default: return false;
  }
  return true;
}

static bool parse_devices(int key, const char *text, struct program *p,
                          const struct argp_state *state) {
  struct sl_predictor_options *predictor = &p->engine.predictor;
  switch (key) {
    case KEY_DEVICES: p->engine.devices = text; break;
    case KEY_PLACEMENT: p->engine.placement = text; break;
    case KEY_MATH:
      if (sl_math_parse(text, &predictor->math) != SL_OK)
        argp_failure(state, EXIT_USAGE, 0, "--math: %s", sl_error());
      break;
    case KEY_MAX_BATCH:
      predictor->max_batch = read_whole(state, "--max-batch", text, 1, 1 << 20);
      break;
    case KEY_MAX_DELAY:
      predictor->max_delay_us = read_whole(state, "--max-delay-us", text, 0, 1000000000);
      break;
    case KEY_BATCHES: predictor->batches = (int)read_whole(state, "--batches", text, 1, 256); break;
    default: return false;
  }
  return true;
}

static bool parse_bench(int key, const char *text, struct program *p,
                        const struct argp_state *state) {
  switch (key) {
    case KEY_BENCH: p->benches = true; break;
    case KEY_CONCURRENCY:
      p->bench.clients = (int)read_whole(state, "--concurrency", text, 1, 4096);
      break;
    case KEY_BATCH: p->bench.batch = read_whole(state, "--batch", text, 1, 1 << 20); break;
    case KEY_SECONDS: p->bench.seconds = read_real(state, "--seconds", text, 0.01, 1e6); break;
    case KEY_JSON: p->bench.json = true; break;
    default: return false;
  }
  return true;
}

static void check(const struct program *p, const struct argp_state *state) {
  if (!p->engine.model) argp_failure(state, EXIT_USAGE, 0, "no model is named; see --help");
  if (p->benches && p->input_count)
    argp_failure(state, EXIT_USAGE, 0, "--bench: its input is random; '%s' is too much",
                 p->inputs[0]);
  if (!p->benches && !p->input_count)
    argp_failure(state, EXIT_USAGE, 0, "no input is named; see --help");
  if (!p->benches && (p->bench.clients || p->bench.batch || p->bench.seconds > 0 || p->bench.json))
    argp_failure(state, EXIT_USAGE, 0,
                 "--concurrency, --batch, --seconds, --json: they belong to --bench");
  if (p->normalize && (p->mean.count || p->deviation.count))
    argp_failure(state, EXIT_USAGE, 0, "--normalize and --mean: give one of the two");
  if (p->images.labels && p->input_count != 1)
    argp_failure(state, EXIT_USAGE, 0, "--labels: they are of one input, here are %d",
                 p->input_count);
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct program *p = state->input;
  switch (key) {
    case KEY_TOP: p->top = (int)read_whole(state, "--top", text, 0, MOST_TOP); break;
    case KEY_LOGITS: p->logits = true; break;
    case 'q': p->quiet = true; break;
    case ARGP_KEY_ARG:
      if (p->engine.model)
        add_input(p, text);
      else
        p->engine.model = text;
      break;
    case ARGP_KEY_END: check(p, state); break;
    default:
      if (parse_inputs(key, text, p, state) || parse_devices(key, text, p, state) ||
          parse_bench(key, text, p, state))
        break;
      return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, "MODEL INPUT...\n--bench MODEL", about, NULL, NULL, NULL};
  struct program p = {.images.seed = 1, .engine.seed = 1, .top = 3};
  struct engine engine = {0};
  start_program(&argp, 0, argc, argv, &p);
  if (!p.bench.clients) p.bench.clients = 1;
  if (!p.bench.batch) p.bench.batch = 1;
  if (p.bench.seconds <= 0) p.bench.seconds = 3;
  int code = find_inputs(&p);
  if (code == EXIT_DONE) code = engine_open(&engine, &p.engine);
  if (code == EXIT_DONE) code = p.benches ? bench_run(&engine, &p.bench) : answer(&p, &engine);
  engine_close(&engine);
  for (int i = 0; i < p.input_count; i++) free(p.inputs[i]);
  free(p.inputs);
  return code == EXIT_FAILED_QUIETLY ? EXIT_DONE : code;
}
