/* starling-predict: runs a saved model on pictures, numbers or lines of text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/abort_message.h"
#include "tools/common/dataset_names.h"
#include "tools/common/option_table.h"
#include "tools/predict/predict.h"

/* ---- the command line ---- */

/* "0.5" or "0.4,0.5,0.6" */
static const char *parse_numbers(const char *text, struct numbers *numbers) {
  char item[64];
  double value;
  numbers->count = 0;
  for (;;) {
    size_t length = strcspn(text, ",");
    if (numbers->count == MOST_NUMBERS)
      return option_problem("has more than %d numbers", (int)MOST_NUMBERS);
    snprintf(item, sizeof item, "%.*s", (int)length, text);
    const char *why = option_real(item, -1e30, 1e30, &value);
    if (why) return option_problem("'%s' %s", item, why);
    numbers->value[numbers->count++] = (float)value;
    if (!text[length]) return NULL;
    text += length + 1;
  }
}

static const char *parse_mean(const struct option_row *row, const char *text, void *values) {
  (void)row;
  return parse_numbers(text, &((struct program *)values)->mean);
}

static const char *parse_deviation(const struct option_row *row, const char *text, void *values) {
  struct numbers *deviation = &((struct program *)values)->deviation;
  const char *why = parse_numbers(text, deviation);
  (void)row;
  for (int i = 0; !why && i < deviation->count; i++)
    if (deviation->value[i] == 0) why = "must not be 0";
  return why;
}

static const char *parse_resize(const struct option_row *row, const char *text, void *values) {
  return option_take(row, text ? text : row->names[SL__RESIZE_BILINEAR], values);
}

static const char *parse_normalize(const struct option_row *row, const char *text, void *values) {
  for (int i = 0; row->names[i]; i++)
    if (!strcmp(row->names[i], text)) return option_take(row, text, values);
  return "unknown; use mnist, cifar10 or none";
}

static const char *const formats[] = {[FORMAT_AUTO] = "auto",
#define SAMPLE_FORMAT(upper, lower) [FORMAT_##upper] = #lower,
#include "tools/predict/formats.def"
#undef SAMPLE_FORMAT
                                      [FORMAT_TEXT] = "text",
                                      [FORMAT_TOKENS] = "tokens",
                                      NULL};
static const char *const filters[] = {
    [SL__RESIZE_NONE] = "none", [SL__RESIZE_BILINEAR] = "bilinear", [SL__RESIZE_BOX] = "box", NULL};
static const char *const normalizations[] = {"mnist", "cifar10", "none", NULL};
static const char *const device_names[] = {"cpu", "cpu:0", "cuda:0", "gpu-or-cpu", "any", NULL};

static const char *math_name(int i) {
  return i <= SL_MATH_BF16 ? sl_math_name((enum sl_math)i) : NULL;
}

static const char *file_format(int i) { return i < FORMAT_TEXT - 1 ? formats[i + 1] : NULL; }

static const char *format_help(void) {
  static char text[400];
  char list[200];
  snprintf(text, sizeof text,
           "Format of the inputs: %s (f32 values as the model takes them, in this machine's byte "
           "order), text, tokens (lines of token numbers), auto (by the first bytes)",
           option_list(file_format, ", ", ", ", list, sizeof list));
  return text;
}

static const char *train_help(void) {
  static char text[400];
  char sets[300];
  snprintf(text, sizeof text,
           "Of folders, %s the training set, not the test set; of data of your own the samples "
           "that were not held back",
           option_list(generated_dataset, ", ", " and ", sets, sizeof sets));
  return text;
}

static const char *seed_help(void) {
  static char text[400];
  char sets[300];
  snprintf(text, sizeof text,
           "Seed of generated %s, and the training's, by which it held samples back",
           option_list(generated_dataset, ", ", " and ", sets, sizeof sets));
  return text;
}

#define FIELD(member) OPTION_FIELD(struct program, member)

static const struct option_row rows[] = {
    OPTION_TITLE("Inputs:"),
    {"format", "NAME", NULL, FIELD(images.format), .names = formats, .help_of = format_help},
    {"inputs", "NAME[,NAME]",
     "Of arrays: their names in the order of the model's inputs, or slices of them, such as "
     "'state[:,0:2]'",
     FIELD(images.arrays), .unset = "the model's; x of a model without"},
    {"resize", "NAME",
     "Fit pictures of another size, or grey ones where the model takes colour: bilinear, box",
     FIELD(images.preparation.resize), .names = filters, .parse = parse_resize,
     .flags = OPTION_OPTIONAL},
    {"skip-bad", NULL, "Leave out pictures that cannot be decoded, and name them",
     FIELD(images.skip_bad)},
    {"invert", NULL, "Black becomes white: for digits drawn in black on white",
     FIELD(images.preparation.invert)},
    {"normalize", "NAME",
     "How the training made its inputs from bytes: mnist, cifar10, none (0 to 1; numbers as they "
     "are)",
     FIELD(normalize), .unset = "as the model says", .names = normalizations,
     .parse = parse_normalize},
    {"mean", "LIST",
     "Instead of --normalize: means of a picture's values from 0 to 1, or of numbers, one for all "
     "channels (a table's columns) or one each",
     .parse = parse_mean},
    {"deviation", "LIST", "With --mean: the values' standard deviations", .parse = parse_deviation},
    {"labels", "FILE", "Labels of the one IDX file", FIELD(images.labels),
     .unset = "beside it, labels-idx1 for images-idx3"},
    {"train", NULL, NULL, FIELD(images.train), .help_of = train_help},
    {"seed", "N", NULL, FIELD(images.seed), .help_of = seed_help},
    {"validation", "SHARE",
     "Data of your own: the share that the training held back, as its --validation",
     FIELD(images.validation), .unset = "0.1"},
    {"fold", "K/N", "The same, as the training's --fold", FIELD(images.fold)},
    {"vocabulary", "FILE", "Words of a language model, or its tokenizer.json",
     FIELD(text.vocabulary),
     .unset = "MODEL.tokenizer.json or MODEL.vocabulary.json, as a training saves them"},
    {"strict", NULL, "A word outside the vocabulary is an error", FIELD(text.strict),
     .unset = "it is <unk>, and counted"},

    OPTION_TITLE("Output:"),
    {"task", "NAME",
     "What the outputs say: class, values, labels (each may be right), mask (a class for each "
     "pixel), model (as its file says)",
     FIELD(task), .names = task_names},
    {"top", "K", "The K most probable classes or next tokens; 0: none", FIELD(top), .least = 0,
     .most = MOST_TOP},
    {"logits", NULL, "The model's raw output, too", FIELD(logits)},
    {"quiet", NULL, "No summary at the end, and no remarks on guesses", FIELD(quiet),
     .letter = 'q'},

    OPTION_TITLE("Devices:"),
    {"devices", "LIST", "cpu, cpu:0,cpu:1, cuda:0,cpu, gpu-or-cpu", FIELD(engine.devices),
     .unset = "all that StarPU finds", .names = device_names},
    {"placement", "TEXT", "Which layers run where, as a trainer's: 'conv1,conv2=cpu:0;fc1-2=cpu:1'",
     FIELD(engine.placement)},
    {"math", "NAME", "f32, tf32, bf16, as in training", FIELD(engine.predictor.math),
     .name_of = math_name},
    {"max-batch", "N", "Samples that run together at most", FIELD(engine.predictor.max_batch),
     .unset = "64", .least = 1, .most = 1 << 20},
    {"max-delay-us", "N", "Microseconds that a batch which is not full waits for more",
     FIELD(engine.predictor.max_delay_us), .least = 0, .most = 1e9},
    {"batches", "N", "Batches that run at the same time", FIELD(engine.predictor.batches),
     .unset = "two a worker", .least = 1, .most = 256},

    OPTION_TITLE("Measuring:"),
    {"bench", NULL, "Latency and throughput on random input, no INPUT", FIELD(benches)},
    {"concurrency", "N", "Clients that ask at the same time", FIELD(bench.clients), .least = 1,
     .most = 4096},
    {"batch", "N", "Samples of each request", FIELD(bench.batch), .least = 1, .most = 1 << 20},
    {"seconds", "S", "Length of the measurement, after a warm-up", FIELD(bench.seconds),
     .least = 0.01, .most = 1e6},
    {"json", NULL, "One JSON object instead of a table", FIELD(bench.json)}};

static int take_name(void *input, char **words, int count, const char **why) {
  struct program *p = input;
  (void)count, (void)why;
  if (p->engine.model)
    add_input(p, words[0]);
  else
    p->engine.model = words[0];
  return 1;
}

static const char *check(void *input) {
  struct program *p = input;
  p->text.tokens = p->images.format == FORMAT_TOKENS;
  if (!p->engine.model) return "no model is named; see --help";
  if (p->benches && p->input_count)
    return option_problem("--bench: its input is random; '%s' is too much", p->inputs[0]);
  if (!p->benches && !p->input_count) return "no input is named; see --help";
  if (!p->benches && (p->bench.clients || p->bench.batch || p->bench.seconds > 0 || p->bench.json))
    return "--concurrency, --batch, --seconds, --json: they belong to --bench";
  if (p->normalize && (p->mean.count || p->deviation.count))
    return "--normalize and --mean: give one of the two";
  if (p->images.format == FORMAT_RAW && (p->normalize || p->mean.count || p->deviation.count))
    return "--format raw: its values are as the model takes them; leave --normalize, --mean and "
           "--deviation out";
  if (p->images.labels && p->input_count != 1)
    return option_problem("--labels: they are of one input, here are %d", p->input_count);
  return NULL;
}

static const char *describe(void) {
  static char text[2400];
  char folders[300], generated[300];
  snprintf(
      text, sizeof text,
      "MODEL is a file that a trainer wrote by --save lenet.json, or an ONNX file, lenet.onnx, "
      "which does not say how its inputs were normalised or what its classes are called. "
      "INPUT: IDX images (MNIST's), CIFAR-10's binary files, PGM, PPM, PNG, JPEG, each plain or "
      "gzip; a folder with %s's files; %s (generated ones, shapes in colour); a table (.csv, .tsv, "
      "plain or .gz) with the training's columns; numbers (.npy); arrays by name (.npz, .h5, a "
      "folder of .npy); a folder with a folder of pictures for each class; text for a language "
      "model, line by line, plain or gzip; - is standard input, of pictures, raw values or "
      "text.\n\n"
      "Output is a JSON line a sample, in the inputs' order. Classes: class, probability, the most "
      "probable classes, the label where the input has one. A regression: values, in the unit of "
      "the training's targets. Several labels: those more likely right than wrong, and all "
      "probabilities. A mask: a number for each pixel, in rows. For a line of text: its tokens (a "
      "line end is one), their log-likelihood (natural), the perplexity, and the most probable "
      "next tokens. A summary goes to the error stream.",
      option_list(folder_dataset, "'s, ", "'s or ", folders, sizeof folders),
      option_list(generated_dataset, ", ", ", ", generated, sizeof generated));
  return text;
}

static void parse(struct program *p, int argc, char **argv) {
  const struct option_program program = {
      .usage = "MODEL INPUT...\n--bench MODEL",
      .about = "Run a saved model on pictures, numbers or lines of text.",
      .description = describe(),
      .exit_status =
          "0 done; 1 a file cannot be read, is damaged or does not fit the model; 2 bad usage.",
      .examples =
          "  lenet --data mnist --save lenet.json\n"
          "  starling-predict lenet.json mnist/t10k-images-idx3-ubyte.gz > answers.jsonl\n"
          "  starling-predict --resize --invert lenet.json digit.png\n"
          "  echo 'the old farmer' | starling-predict lm.json -\n"
          "  starling-predict --bench --concurrency 8 lenet.json\n",
      .manual = {.environment = "STARPU_NCPU, STARPU_NCUDA: numbers of workers. StarPU's other "
                                "variables hold, too.",
                 .files = "MODEL.vocabulary.json, MODEL.tokenizer.json: words of a language model.",
                 .see_also = "lenet(1), lstm_lm(1), mlp(1), resnet(1), starling-train(1)"},
      .sets = {{rows, sizeof rows / sizeof *rows, p, NULL, NULL}},
      .input = p,
      .argument = take_name,
      .check = check};
  option_parse(&program, argc, argv);
}

int main(int argc, char **argv) {
  struct program p = {.images.seed = 1, .engine.seed = 1, .top = 3};
  struct engine engine = {0};
  parse(&p, argc, argv);
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
