/* starling-predict: what a saved model says to pictures, numbers or lines of text. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "predict.h"

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
    {"mean", KEY_MEAN, "LIST", 0, "The same by numbers, one for all channels or one each: mean", 1},
    {"deviation", KEY_DEVIATION, "LIST", 0, "and deviation of values from 0 to 1", 1},
    {"labels", KEY_LABELS, "FILE", 0,
     "Labels of the one IDX file (default: beside it, labels-idx1 for images-idx3)", 1},
    {"train", KEY_TRAIN, NULL, 0, "Of folders and digits take the training set, not the test set",
     1},
    {"seed", KEY_SEED, "N", 0, "Seed of generated digits (default 1)", 1},
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
    "MODEL is what a trainer's --save lenet.json wrote. INPUT: IDX images (MNIST's), CIFAR-10's "
    "binary files, PGM, PPM, PNG, each plain or gzip; a folder with MNIST's or CIFAR-10's files; "
    "digits (generated ones); text for a language model, line by line; - is standard input.\n\n"
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

struct numbers {
  float value[3];
  int count;
};

struct program {
  struct engine_options engine;
  struct image_options images;
  struct text_options text;
  struct bench_options bench;
  const char *normalize; /* NULL: as the model says */
  struct numbers mean, deviation;
  bool benches, quiet;
  int top;
  bool logits;
  char **inputs; /* their names live as long as the program */
  int input_count;
};

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

static void add_input(struct program *p, const char *name) {
  p->inputs = reallocarray(p->inputs, (size_t)p->input_count + 1, sizeof *p->inputs);
  char *copy = strdup(name);
  if (!p->inputs || !copy) exit(fail_memory());
  p->inputs[p->input_count++] = copy;
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

/* ---- inputs ---- */

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The first of the names that the folder has, added as an input. */
static bool add_from(struct program *p, const char *folder, const char *const *names) {
  char path[PATH_MAX];
  for (int i = 0; names[i]; i++) {
    int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    if (length >= PATH_MAX || access(path, F_OK) != 0) continue;
    add_input(p, path);
    return true;
  }
  return false;
}

static bool add_cifar10(struct program *p, const char *folder) {
  char names[2][64];
  bool any = false;
  for (int f = 1; f <= 5; f++) {
    const char *file = p->images.train ? "data_batch_%d.bin" : "test_batch.bin";
    char name[32];
    snprintf(name, sizeof name, file, f);
    snprintf(names[0], sizeof names[0], "%s", name);
    snprintf(names[1], sizeof names[1], "cifar-10-batches-bin/%s", name);
    any |= add_from(p, folder, (const char *const[]){names[0], names[1], NULL});
    if (!p->images.train) break;
  }
  return any;
}

static int add_folder(struct program *p, const char *folder) {
  static const char *const mnist[][3] = {
      {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz", NULL},
      {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", NULL}};
  if (add_from(p, folder, mnist[p->images.train]) || add_cifar10(p, folder)) return EXIT_DONE;
  return fail(EXIT_FAILED,
              "%s: holds neither MNIST's %s set (%s) nor CIFAR-10's; is it the right folder?",
              folder, p->images.train ? "training" : "test", mnist[p->images.train][0]);
}

/* Folders become their files; what is not there is told before anything else is done. */
static int find_inputs(struct program *p) {
  char **names = p->inputs;
  int count = p->input_count, code = EXIT_DONE;
  p->inputs = NULL;
  p->input_count = 0;
  for (int i = 0; i < count && code == EXIT_DONE; i++) {
    if (is_folder(names[i]))
      code = add_folder(p, names[i]);
    else if (!strcmp(names[i], "-") || !strcmp(names[i], "digits") || access(names[i], R_OK) == 0)
      add_input(p, names[i]);
    else
      code = fail(EXIT_FAILED, "%s: cannot be opened: %s", names[i], strerror(errno));
  }
  for (int i = 0; i < count; i++) free(names[i]);
  free(names);
  return code;
}

/* ---- how inputs are prepared ---- */

static void set_normal(struct preparation *how, int count, const float *mean,
                       const float *deviation) {
  for (int c = 0; c < 3; c++) {
    how->mean[c] = mean[count == 3 ? c : 0];
    how->deviation[c] = deviation[count == 3 ? c : 0];
  }
  how->known = true;
}

static const float mnist[2] = {0.1307f, 0.3081f};
static const float cifar10[2][3] = {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};

static void set_named(struct preparation *how, const char *name) {
  static const float none[2] = {0, 1};
  if (!strcmp(name, "mnist")) set_normal(how, 1, &mnist[0], &mnist[1]);
  if (!strcmp(name, "cifar10")) set_normal(how, 3, cifar10[0], cifar10[1]);
  if (!strcmp(name, "none")) set_normal(how, 1, &none[0], &none[1]);
}

static int set_given(struct program *p, struct preparation *how) {
  int64_t channels = how->shape.dim[0];
  const struct numbers none = {{0}, 1}, one = {{1}, 1};
  const struct numbers *lists[2] = {p->mean.count ? &p->mean : &none,
                                    p->deviation.count ? &p->deviation : &one};
  float values[2][3];
  for (int k = 0; k < 2; k++) {
    if (lists[k]->count != 1 && lists[k]->count != channels)
      return fail(EXIT_USAGE, "--mean, --deviation: %d numbers, but the model has %lld channels",
                  lists[k]->count, (long long)channels);
    for (int c = 0; c < 3; c++) values[k][c] = lists[k]->value[lists[k]->count == 1 ? 0 : c];
  }
  set_normal(how, 3, values[0], values[1]);
  return EXIT_DONE;
}

/* The usual sets' shapes; said, because it is a guess. */
static int set_usual(struct program *p, struct preparation *how) {
  const char *name = sl_shape_equal(&how->shape, &SL_SHAPE(1, 28, 28))   ? "mnist"
                     : sl_shape_equal(&how->shape, &SL_SHAPE(3, 32, 32)) ? "cifar10"
                                                                         : NULL;
  if (!name)
    return fail(EXIT_FAILED,
                "%s: does not say how its inputs were normalised; give --normalize, or --mean and "
                "--deviation",
                p->engine.model);
  set_named(how, name);
  if (!p->quiet)
    fprintf(stderr,
            "starling-predict: %s does not say how its inputs were normalised; taken as %s's\n",
            p->engine.model, name);
  return EXIT_DONE;
}

static int plan_images(struct program *p, const struct engine *engine) {
  struct preparation *how = &p->images.preparation;
  const struct sl_model_notes *notes = sl_model_notes(engine->model);
  how->shape = engine->input;
  how->pictures = how->shape.ndim == 3 && (how->shape.dim[0] == 1 || how->shape.dim[0] == 3);
  if (!how->pictures || p->images.format == FORMAT_RAW) return EXIT_DONE;
  if (p->mean.count || p->deviation.count) return set_given(p, how);
  if (p->normalize)
    set_named(how, p->normalize);
  else if (notes->channels)
    set_normal(how, notes->channels, notes->mean, notes->deviation);
  return how->known ? EXIT_DONE : set_usual(p, how);
}

/* ---- pictures and numbers ---- */

static bool room_for(struct slot *slot, int64_t n, int64_t inputs, int64_t outputs) {
  if (slot->inputs) return true;
  slot->inputs = calloc((size_t)(n * inputs), sizeof(float));
  slot->outputs = calloc((size_t)(n * outputs), sizeof(float));
  slot->origins = calloc((size_t)n, sizeof *slot->origins);
  return slot->inputs && slot->outputs && slot->origins;
}

struct filler {
  struct engine *engine;
  struct flow *flow;
  struct slot *slot; /* being filled; NULL: none */
  int64_t most, values;
};

static int send(struct filler *f) {
  struct slot *slot = f->slot;
  f->slot = NULL;
  if (!slot || !slot->n) return EXIT_DONE;
  return flow_send(f->flow, slot) ? EXIT_DONE : EXIT_FAILED;
}

/* Every sample of one input; requests go on over several inputs. */
static int fill(struct filler *f, const struct image_options *options, const char *path) {
  struct images *images = images_open(options, path);
  int code = images ? EXIT_DONE : EXIT_FAILED;
  while (code == EXIT_DONE) {
    struct slot *slot = f->slot;
    if (!slot) {
      slot = f->slot = flow_slot(f->flow);
      if (!slot) code = EXIT_FAILED_QUIETLY;
      if (slot && !room_for(slot, f->most, f->values, f->engine->outputs)) code = fail_memory();
      if (code != EXIT_DONE) break;
      slot->predictor = f->engine->predictor;
      slot->n = 0;
    }
    float *values = (float *)slot->inputs + slot->n * f->values;
    if (!images_next(images, values, &slot->origins[slot->n], &code)) break;
    if (++slot->n == f->most) code = send(f);
  }
  images_close(images);
  return code;
}

static int run_images(struct program *p, struct engine *engine, struct flow *flow) {
  int64_t most = p->engine.predictor.max_batch;
  struct filler f = {.engine = engine,
                     .flow = flow,
                     .most = most ? most : 64,
                     .values = sl_shape_count(&engine->input)};
  int code = EXIT_DONE;
  for (int i = 0; i < p->input_count && code == EXIT_DONE; i++)
    code = fill(&f, &p->images, p->inputs[i]);
  int last = send(&f); /* what was read before a failure is answered */
  return code != EXIT_DONE ? code : last;
}

/* ---- text ---- */

static int open_vocabulary(const struct program *p, const struct engine *engine,
                           struct sl_vocabulary **vocabulary) {
  char path[PATH_MAX];
  if (p->text.tokens) return EXIT_DONE;
  snprintf(path, sizeof path, "%s.vocabulary.json", engine->options->model);
  if (p->text.vocabulary) snprintf(path, sizeof path, "%s", p->text.vocabulary);
  enum sl_status status = sl_vocabulary_load(path, vocabulary);
  if (status == SL_IO)
    return fail(EXIT_FAILED,
                "%s; --vocabulary names the model's words, --format tokens does without",
                sl_error());
  if (status != SL_OK) return fail_library(status);
  if (sl_vocabulary_size(*vocabulary) == engine->words) return EXIT_DONE;
  return fail(
      EXIT_FAILED, "%s: has %lld words, but the model %s has %lld; are they of one training?", path,
      (long long)sl_vocabulary_size(*vocabulary), engine->options->model, (long long)engine->words);
}

static int run_text(struct program *p, struct engine *engine, const struct sl_vocabulary *words,
                    struct flow *flow) {
  int code = EXIT_DONE;
  for (int i = 0; i < p->input_count && code == EXIT_DONE; i++)
    code = text_run(engine, &p->text, words, p->inputs[i], flow);
  return code;
}

/* ---- the run ---- */

static int check_output(const struct program *p, const struct engine *engine) {
  char text[96];
  const struct sl_shape *output = sl_model_output(engine->model);
  sl_shape_text(output, text, sizeof text);
  bool one = output->ndim >= 1;
  for (int i = 1; i < output->ndim; i++) one &= output->dim[i] == 1;
  if (engine->tokens && (output->ndim != 2 || output->dim[1] != engine->words))
    return fail(EXIT_FAILED, "%s: its output %s is not a choice of %lld words for each token",
                p->engine.model, text, (long long)engine->words);
  if (!engine->tokens && !one)
    return fail(EXIT_FAILED, "%s: its output %s is no list of classes", p->engine.model, text);
  bool text_wanted = p->images.format == FORMAT_TEXT || p->images.format == FORMAT_TOKENS;
  if (engine->tokens && p->images.format != FORMAT_AUTO && !text_wanted)
    return fail(EXIT_USAGE, "--format: %s is a language model; text and tokens are what it reads",
                p->engine.model);
  if (!engine->tokens && text_wanted)
    return fail(EXIT_USAGE, "--format: %s is no language model: it reads no text", p->engine.model);
  return EXIT_DONE;
}

/* Requests under way: enough for all devices, within some memory. */
static int count_slots(const struct program *p, const struct engine *engine) {
  const int64_t budget = 256 << 20;
  int workers = sl_worker_count(engine->context);
  int64_t most = p->engine.predictor.max_batch ? p->engine.predictor.max_batch : 64;
  int64_t lanes = p->engine.predictor.batches ? p->engine.predictor.batches : 2 * workers;
  int64_t wanted = engine->tokens ? most * lanes : lanes + 2;
  int64_t bytes = engine->tokens ? 64 * engine->words
                                 : most * (sl_shape_count(&engine->input) + engine->outputs);
  int64_t fits = budget / (4 * bytes);
  if (fits < 3) fits = 3;
  return (int)(wanted < fits ? wanted : fits);
}

static void print_summary(const struct printer *done, bool text, double seconds) {
  double rate = (double)done->samples / (seconds > 0 ? seconds : 1e-9);
  const char *what = text ? "lines" : "samples";
  fprintf(stderr, "%lld %s", (long long)done->samples, what);
  if (text)
    fprintf(stderr, ", %lld tokens, perplexity %.3f", (long long)done->tokens,
            exp(-done->log_likelihood / (double)(done->tokens ? done->tokens : 1)));
  if (done->labelled == done->samples && done->labelled)
    fprintf(stderr, ", accuracy %.4f", (double)done->right / (double)done->labelled);
  else if (done->labelled)
    fprintf(stderr, ", accuracy %.4f of %lld with labels",
            (double)done->right / (double)done->labelled, (long long)done->labelled);
  fprintf(stderr, ", %.0f %s/s\n", rate, what);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int answer(struct program *p, struct engine *engine) {
  struct sl_vocabulary *vocabulary = NULL;
  const struct sl_shape *output = sl_model_output(engine->model);
  struct printer printer = {.notes = sl_model_notes(engine->model),
                            .classes = engine->tokens ? engine->words : output->dim[0],
                            .top = p->top,
                            .logits = p->logits};
  struct flow *flow = NULL;
  double begun = now();
  int code = check_output(p, engine);
  if (code == EXIT_DONE)
    code = engine->tokens ? open_vocabulary(p, engine, &vocabulary) : plan_images(p, engine);
  if (code == EXIT_DONE && !engine->tokens) code = engine_predictor(engine);
  printer.vocabulary = vocabulary;
  if (printer.top > printer.classes) printer.top = (int)printer.classes;
  if (code == EXIT_DONE) {
    printer.probabilities = calloc((size_t)printer.classes, sizeof *printer.probabilities);
    flow = printer.probabilities ? flow_open(count_slots(p, engine),
                                             engine->tokens ? print_line : print_images, &printer)
                                 : NULL;
    code = flow ? EXIT_DONE : fail_memory();
  }
  if (flow) {
    code = engine->tokens ? run_text(p, engine, vocabulary, flow) : run_images(p, engine, flow);
    int end = flow_close(flow);
    if (end != EXIT_DONE) code = end;
  }
  if (code == EXIT_DONE) code = print_end();
  if (code == EXIT_DONE && !p->quiet) print_summary(&printer, engine->tokens, now() - begun);
  free(printer.probabilities);
  sl_vocabulary_free(vocabulary);
  return code;
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
