/* A language model of stacked LSTM layers (Zaremba et al., arXiv 1409.2329). It learns by truncated
 * back-propagation through time, with the text cut into as many parts as a batch has rows; or line
 * by line, with lines of similar length in a batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/language.h"

enum { MOST_LAYERS = 64 };

struct lstm_lm {
  struct language language;
  int64_t layers, hidden, embed, bptt, chunk, half_life;
  enum cell { CELL_LSTM, CELL_GRU } cell;
  bool tied;
  double dropout;
  struct buckets {
    bool asked; /* --buckets is given; else the text is one long sequence */
    int64_t length[SL_MAX_BUCKETS];
    int count;
    bool given; /* the lengths are given; else `count` lengths are chosen */
    enum sl_long longer;
  } buckets;
};

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct lstm_lm *lm = input;
  const struct sl_layer_options layer = {.init = init};
  const struct sl_dropout_options dropout = {.rate = (float)lm->dropout};
  const struct sl_lstm_options lstm = {.layer = layer, .features = lm->hidden};
  const struct sl_gru_options gru = {.layer = layer, .features = lm->hidden};
  struct sl_layer_options table = layer, decoder = layer;
  char name[24];
  if (lm->tied) {
    decoder.shares = "embed";
    /* the embedding's default N(0, 1) would be far too large for a decoder */
    if (init == SL_INIT_DEFAULT) table.init = SL_INIT_UNIFORM;
  }
  enum sl_status status =
      sl_embedding(model, "embed",
                   &(struct sl_embedding_options){
                       .layer = table, .vocabulary = data->classes, .features = lm->embed});
  for (int64_t i = 0; i <= lm->layers && status == SL_OK; i++) {
    /* between layers, but not between time steps */
    snprintf(name, sizeof name, "drop%lld", (long long)i);
    if (lm->dropout > 0) status = sl_dropout(model, name, &dropout);
    if (i == lm->layers || status != SL_OK) break;
    snprintf(name, sizeof name, "%s%lld", lm->cell == CELL_GRU ? "gru" : "lstm", (long long)i);
    status = lm->cell == CELL_GRU ? sl_gru(model, name, &gru) : sl_lstm(model, name, &lstm);
  }
  if (status != SL_OK) return status;
  return sl_dense(
      model, "decoder",
      &(struct sl_dense_options){.layer = decoder, .features = data->classes, .positions = true});
}

/* ---- the text ---- */

static enum sl_status make_set(const void *input, const struct text_part *part,
                               const int32_t *tokens, int64_t count, const struct sl_dataset *like,
                               struct sl_dataset **set) {
  const struct lstm_lm *lm = input;
  const struct buckets *b = &lm->buckets;
  struct sl_sentences_options sentences = {.end = language_line_end(&lm->language),
                                           .buckets = b->given ? b->length : NULL,
                                           .bucket_count = b->count,
                                           .longer = b->longer};
  int words = (int)language_size(&lm->language);
  if (!b->asked) return sl_tokens_new(part->name, tokens, count, lm->bptt, words, set);
  if (like) {
    sentences.buckets = sl_dataset_info(like)->buckets;
    sentences.bucket_count = sl_dataset_info(like)->bucket_count;
  }
  return sl_sentences_new(part->name, tokens, count, words, &sentences, set);
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train,
                                struct sl_dataset **test) {
  struct lstm_lm *lm = input;
  return language_open_data(cli, &lm->language, make_set, lm, lm->buckets.asked ? 0 : lm->bptt,
                            train, test);
}

static enum sl_status save(const char *weights, const void *input) {
  return language_save(weights, &((const struct lstm_lm *)input)->language);
}

static const char *beside(void *input, const char *weights, int index, char *path, size_t size) {
  return language_beside(&((const struct lstm_lm *)input)->language, weights, index, path, size);
}

static enum sl_status sample(struct sl_context *context, const struct cli *cli, void *input) {
  struct lstm_lm *lm = input;
  return language_sample(context, cli, &lm->language, build, lm, lm->bptt, 0);
}

static const char *unit(const void *input) {
  return language_unit(&((const struct lstm_lm *)input)->language);
}

static void tell(const void *input, char *line, size_t size) {
  language_tell(&((const struct lstm_lm *)input)->language, line, size);
}

/* ---- the program's own options ---- */

/* "8,16,32" */
static const char *parse_lengths(const char *text, struct buckets *b) {
  char copy[1024], *rest = copy;
  if (strlen(text) >= sizeof copy) return "the list is too long";
  snprintf(copy, sizeof copy, "%s", text);
  b->given = true;
  b->count = 0;
  for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
    if (b->count == SL_MAX_BUCKETS) return option_problem("at most %d lengths", SL_MAX_BUCKETS);
    const char *why = option_whole(item, 1, 1000000, &b->length[b->count]);
    if (why) return option_problem("'%s' %s", item, why);
    if (b->count && b->length[b->count] <= b->length[b->count - 1]) return "lengths must rise";
    b->count++;
  }
  return NULL;
}

/* "8,16,32" or "auto" or "auto:N" */
static const char *parse_buckets(const struct option_row *row, const char *text, void *values) {
  struct buckets *b = &((struct lstm_lm *)values)->buckets;
  int64_t count = 5;
  (void)row;
  *b = (struct buckets){.asked = true, .longer = b->longer};
  if (strncmp(text, "auto", 4) != 0 || (text[4] && text[4] != ':')) return parse_lengths(text, b);
  const char *why = text[4] ? option_whole(text + 5, 1, SL_MAX_BUCKETS, &count) : NULL;
  b->count = (int)count;
  return why ? option_problem("N of auto:N %s", why) : NULL;
}

static const char *check(void *input) {
  struct lstm_lm *lm = input;
  if (lm->buckets.asked && lm->bptt)
    return "--buckets and --bptt: a line is one sequence; give one of the two";
  if (!lm->buckets.asked && lm->buckets.longer == SL_LONG_DROP)
    return "--long: it belongs to --buckets";
  if (!lm->bptt) lm->bptt = 35;
  if (!lm->buckets.asked && lm->chunk > lm->bptt)
    return option_problem("--chunk %lld: a window has fewer time steps, --bptt %lld",
                          (long long)lm->chunk, (long long)lm->bptt);
  if (lm->tied && lm->embed != lm->hidden)
    return option_problem("--tied: --embed %lld must be --hidden %lld", (long long)lm->embed,
                          (long long)lm->hidden);
  return language_check(&lm->language);
}

static const char *const cells[] = {[CELL_LSTM] = "lstm", [CELL_GRU] = "gru", NULL};
static const char *const longs[] = {[SL_LONG_SPLIT] = "split", [SL_LONG_DROP] = "drop", NULL};
static const char *const bucket_names[] = {"auto", NULL};

#define FIELD(member) OPTION_FIELD(struct lstm_lm, member), .flags = OPTION_OWN
#define SIZE .least = 1, .most = 100000

static const struct option_row rows[] = {
    LANGUAGE_LEVEL_ROWS(struct lstm_lm, language),
    {"cell", "NAME", "Kind of the recurrent layers: lstm, gru", FIELD(cell), .names = cells},
    {"layers", "N", "Recurrent layers", FIELD(layers), .least = 1, .most = MOST_LAYERS},
    {"hidden", "N", "Width of each", FIELD(hidden), SIZE},
    {"embed", "N", "Width of the embedding", FIELD(embed), SIZE},
    {"dropout", "X", "Dropout between the layers", FIELD(dropout), .least = 0, .most = 0.99},
    {"bptt", "N", "Time steps that the gradient goes back", FIELD(bptt), SIZE},
    {"buckets", "LIST",
     "Learn line by line, lines sorted into buckets of these lengths in tokens (8,16,32), or of N "
     "lengths that are chosen (auto:N; auto: 5)",
     .parse = parse_buckets, .unset = "one long text in windows of --bptt", .names = bucket_names,
     .flags = OPTION_OWN},
    {"long", "NAME", "Lines longer than the last bucket: split, drop", FIELD(buckets.longer),
     .names = longs},
    {"chunk", "N", "Time steps a task, so that layers overlap", FIELD(chunk),
     .unset = "all of --bptt; half of it for one slice on CPUs", SIZE},
    {"half-life", "N", "Halve the learning rate every N epochs", FIELD(half_life), .unset = "never",
     SIZE},
    {"tied", NULL, "The decoder takes the embedding's weight (--embed = --hidden)", FIELD(tied)},
    LANGUAGE_SAMPLE_ROWS(struct lstm_lm, language)};

int main(int argc, char **argv) {
  struct lstm_lm lm = {
      .language = LANGUAGE_DEFAULTS("lstm_lm"), .layers = 2, .hidden = 200, .embed = 200};
  const struct program program = {
      .cli = {.about =
                  "Train a language model of LSTM layers on a text file or generated sentences.",
              .description =
                  "The text is one long sequence, cut into as many parts as a batch has rows, and "
                  "learned by truncated back-propagation through time with the state carried on; "
                  "with --buckets it is learned line by line. Nine tenths of the file are for "
                  "training, the next twentieth for validation.",
              .examples = "  lstm_lm --epochs 1\n"
                          "  lstm_lm --data text.txt --layers 2 --hidden 650 --save lm.json\n"
                          "  lstm_lm --layers 2 --hidden 650 --load lm.json --sample 50\n",
              .rows = rows,
              .row_count = sizeof rows / sizeof *rows,
              .input = &lm,
              .check = check,
              .beside = beside},
      .data = "grammar",
      .epochs = 5,
      .batch = 20,
      .lr = 20,
      .clip = 0.25f,
      .build = build,
      .open_data = open_data,
      .takes_text = language_takes_text,
      .save = save,
      .tell = tell,
      .unit = unit,
      .asks_instead = &lm.language.sample,
      .instead = sample,
      .half_life = &lm.half_life,
      .chunk = &lm.chunk};
  int code = run_program(&program, argc, argv);
  language_close(&lm.language);
  return code;
}
