/* A decoder-only transformer on a text: GPT-2's or Llama's layers. Samples are windows of --context
 * tokens, in an order of their own in each epoch; each token's answer is the token behind it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt_hugging_face.h"
#include "examples/gpt_model.h"
#include "tools/train/language.h"

enum { MOST_USUAL_CONTEXT = 1024 }; /* tokens of a sample, where a folder's model allows more */

struct gpt {
  struct language language;
  enum gpt_style style;
  int64_t layers, heads, kv_heads, width, ffn, context, chunk;
  double dropout;
  /* of --load FOLDER/ of Hugging Face; NULL: none. What its config.json says. */
  const char *folder;
  struct gpt_options loaded;
};

/* Positions of GPT-2's table; Llama's are computed, and its samples may be as short as one likes.
 */
static int64_t positions(const struct gpt *gpt) {
  return gpt->folder && gpt->style == GPT_STYLE_GPT2 ? gpt->loaded.context : gpt->context;
}

static int64_t words(const struct gpt *gpt) {
  return gpt->folder ? gpt->loaded.vocabulary : language_size(&gpt->language);
}

/* The options of the command line, and the further settings of a loaded config.json. */
static struct gpt_options model_options(const struct gpt *gpt) {
  struct gpt_options options = gpt->loaded;
  options.style = gpt->style;
  options.layers = gpt->layers;
  options.heads = gpt->heads;
  options.kv_heads = gpt->kv_heads;
  options.width = gpt->width;
  options.ffn = gpt->ffn;
  options.context = positions(gpt);
  options.vocabulary = words(gpt);
  options.dropout = (float)gpt->dropout;
  return options;
}

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct gpt_options options = model_options(input);
  (void)data;
  return gpt_build(model, &options, init);
}

static enum sl_status load(struct sl_model *model, const char *path, const void *input) {
  const struct gpt_options options = model_options(input);
  return path_names_folder(path) ? gpt_load_folder(model, path, &options)
                                 : sl_model_load(model, path);
}

static enum sl_status write_model(struct sl_model *model, const char *path, const void *input) {
  const struct gpt *gpt = input;
  struct gpt_options options = model_options(gpt);
  if (!path_names_folder(path)) return sl_model_save(model, path);
  if (gpt->folder) options.context = gpt->loaded.context;
  return gpt_save_folder(model, path, gpt->folder, &options);
}

static void fail(const char *problem) {
  fprintf(stderr, "gpt: %s\n", problem);
  exit(EXIT_USAGE);
}

/* Of samples and model. Tokens without an embedding end the program here; embeddings without a
 * token do not matter. */
static int64_t classes(const void *input) {
  const struct gpt *gpt = input;
  const struct language *lm = &gpt->language;
  int64_t size = language_size(lm);
  if (gpt->folder && (lm->tokenizer || lm->vocabulary) && size > gpt->loaded.vocabulary)
    fail(option_problem("%s: has embeddings of %lld tokens, the vocabulary has %lld", gpt->folder,
                        (long long)gpt->loaded.vocabulary, (long long)size));
  return words(gpt);
}

static enum sl_status make_set(const void *input, const struct text_part *part,
                               const int32_t *tokens, int64_t count, const struct sl_dataset *like,
                               struct sl_dataset **set) {
  const struct gpt *gpt = input;
  (void)like;
  return sl_tokens_new(part->name, tokens, count, gpt->context, (int)classes(gpt), set);
}

static const char *given(const struct cli *cli, const char *name);
static const char *check(void *input);

/* The model's size is the folder's; --context may be shorter than its positions. */
static void take_folder(const struct cli *cli, struct gpt *gpt) {
  const struct gpt_options *o = &gpt->loaded;
  const char *problem = gpt_read_config(cli->load, &gpt->loaded);
  if (problem) fail(problem);
  const struct {
    const char *name;
    int64_t *value, said;
  } sizes[] = {{"layers", &gpt->layers, o->layers},
               {"heads", &gpt->heads, o->heads},
               {"kv-heads", &gpt->kv_heads, o->kv_heads},
               {"width", &gpt->width, o->width},
               {"ffn", &gpt->ffn, o->ffn}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (given(cli, sizes[i].name) && *sizes[i].value != sizes[i].said)
      fail(option_problem("--%s %lld: the model in %s has %lld; leave the option out",
                          sizes[i].name, (long long)*sizes[i].value, cli->load,
                          (long long)sizes[i].said));
    *sizes[i].value = sizes[i].said;
  }
  if (given(cli, "style") && gpt->style != o->style)
    fail(option_problem("--style: the model in %s is of the other style; leave the option out",
                        cli->load));
  if (given(cli, "context") && gpt->context > o->context)
    fail(option_problem("--context %lld: the model in %s has %lld positions; take %lld or less",
                        (long long)gpt->context, cli->load, (long long)o->context,
                        (long long)o->context));
  if (!given(cli, "context"))
    gpt->context = o->context < MOST_USUAL_CONTEXT ? o->context : MOST_USUAL_CONTEXT;
  gpt->style = o->style;
  gpt->folder = cli->load;
  if ((problem = check(gpt))) fail(problem);
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train,
                                struct sl_dataset **test) {
  struct gpt *gpt = input;
  const char *const saved[] = {cli->save, cli->best};
  if (cli->load && path_names_folder(cli->load)) take_folder(cli, gpt);
  for (int i = 0; i < 2; i++)
    if (saved[i] && path_names_folder(saved[i]) && gpt->style == GPT_STYLE_GPT2 && gpt->kv_heads &&
        gpt->kv_heads != gpt->heads)
      fail(option_problem(
          "--kv-heads %lld: a folder's GPT-2 has as many as --heads; save a file, or "
          "take --style llama",
          (long long)gpt->kv_heads));
  return language_open_data(cli, &gpt->language, make_set, gpt, gpt->context, train, test);
}

static enum sl_status save(const char *weights, const void *input) {
  return language_save(weights, &((const struct gpt *)input)->language);
}

static const char *beside(void *input, const char *weights, int index, char *path, size_t size) {
  const struct language *lm = &((const struct gpt *)input)->language;
  if (!path_names_folder(weights)) return language_beside(lm, weights, index, path, size);
  if (index < GPT_FOLDER_FILES) return gpt_folder_file(weights, index, path, size);
  return language_beside(lm, weights, index - GPT_FOLDER_FILES, path, size);
}

static enum sl_status sample(struct sl_context *context, const struct cli *cli, void *input) {
  struct gpt *gpt = input;
  if (path_names_folder(cli->load)) take_folder(cli, gpt);
  return language_sample(context, cli, &gpt->language, build, gpt, gpt->context, gpt->context);
}

static const char *unit(const void *input) {
  return language_unit(&((const struct gpt *)input)->language);
}

static void tell(const void *input, char *line, size_t size) {
  language_tell(&((const struct gpt *)input)->language, line, size);
}

static const char *check(void *input) {
  struct gpt *gpt = input;
  if (gpt->width % gpt->heads)
    return option_problem("--heads %lld: must divide --width %lld", (long long)gpt->heads,
                          (long long)gpt->width);
  if (gpt->kv_heads && gpt->heads % gpt->kv_heads)
    return option_problem("--kv-heads %lld: must divide --heads %lld", (long long)gpt->kv_heads,
                          (long long)gpt->heads);
  if (gpt->style == GPT_STYLE_LLAMA && gpt->width / gpt->heads % 2)
    return option_problem(
        "--heads %lld: a head of --width %lld / %lld is odd; rotary positions "
        "turn pairs",
        (long long)gpt->heads, (long long)gpt->width, (long long)gpt->heads);
  if (gpt->chunk > gpt->context)
    return option_problem("--chunk %lld: a sample has fewer tokens, --context %lld",
                          (long long)gpt->chunk, (long long)gpt->context);
  return language_check(&gpt->language);
}

static const char *const styles[] = {[GPT_STYLE_GPT2] = "gpt2", [GPT_STYLE_LLAMA] = "llama", NULL};

#define FIELD(member) OPTION_FIELD(struct gpt, member), .flags = OPTION_OWN
#define SIZE .least = 1, .most = 1e6

static const struct option_row rows[] = {
    LANGUAGE_LEVEL_ROWS(struct gpt, language),
    {"style", "NAME",
     "gpt2 (learned positions, layer norm, GELU, the embedding's weight in the head) or llama "
     "(rotary positions, RMS norm, SwiGLU)",
     FIELD(style), .names = styles},
    {"layers", "N", "Blocks of attention and a feed-forward part", FIELD(layers), .least = 1,
     .most = 1000},
    {"heads", "N", "Heads of attention", FIELD(heads), .least = 1, .most = 1000},
    {"kv-heads", "N", "Heads of keys and values, each for a group of heads", FIELD(kv_heads),
     .unset = "as many as --heads", .least = 1, .most = 1000},
    {"width", "N", "Values of a token between the layers", FIELD(width), SIZE},
    {"ffn", "N", "Inner values of the feed-forward part", FIELD(ffn),
     .unset = "4 times --width; llama: 8/3 times", SIZE},
    {"context", "N", "Tokens of a sample, and the most that a token looks back", FIELD(context),
     SIZE},
    {"chunk", "N", "Tokens a task, so that layers overlap", FIELD(chunk), .unset = "all", SIZE},
    {"dropout", "X", "Dropout of attention, its output, and the feed-forward part", FIELD(dropout),
     .least = 0, .most = 0.99},
    LANGUAGE_SAMPLE_ROWS(struct gpt, language)};

/* The option's text; NULL: not given. */
static const char *given(const struct cli *cli, const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].name, name)) return cli->own_given[i];
  return NULL;
}

int main(int argc, char **argv) {
  struct gpt gpt = {
      .language = LANGUAGE_DEFAULTS("gpt"), .layers = 4, .heads = 4, .width = 128, .context = 64};
  gpt.language.level = SL_TEXT_CHAR;
  gpt.language.load = load;
  gpt.language.classes = classes;
  const struct program program = {
      .cli = {.about = "Train a transformer, as GPT-2 or Llama, on a text file.",
              .description =
                  "Samples are windows of --context tokens. Nine tenths of the file are for "
                  "training, the next twentieth for validation. A block's layers are a group: "
                  "--placement 'h0-1=cpu:0;h2-3=cpu:1' places blocks.",
              .examples =
                  "  gpt --data text.txt --steps 2000 --save gpt.safetensors\n"
                  "  gpt --data text.txt --style llama --kv-heads 2 --math bf16\n"
                  "  gpt --load gpt.safetensors --sample 300 --temperature 0.8\n"
                  "  gpt --load gpt2/ --save tuned/ --steps 100  (Hugging Face's folders)\n",
              .rows = rows,
              .row_count = sizeof rows / sizeof *rows,
              .input = &gpt,
              .check = check,
              .beside = beside},
      .data = "grammar",
      .epochs = 1,
      .batch = 12,
      .optimizer = "adamw",
      .lr = 1e-3f,
      .weight_decay = 0.1f,
      .decay_weights_only = true,
      .beta2 = 0.99f,
      .clip = 1,
      .lr_schedule = "cosine:0.1,warmup:5%",
      .windows = true,
      .build = build,
      .open_data = open_data,
      .takes_text = language_takes_text,
      .load = load,
      .write = write_model,
      .save = save,
      .tell = tell,
      .unit = unit,
      .asks_instead = &gpt.language.sample,
      .instead = sample,
      .chunk = &gpt.chunk};
  int code = run_program(&program, argc, argv);
  language_close(&gpt.language);
  return code;
}
