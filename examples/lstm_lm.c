/* A language model of stacked LSTM layers (Zaremba et al., arXiv 1409.2329). It learns by truncated
 * back-propagation through time, with the text cut into as many parts as a batch has rows; or line
 * by line, with lines of similar length in a batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/run.h"
#include "tools/train/text_parts.h"

enum { MOST_LAYERS = 64, MOST_PROMPT = 10000 };

struct lstm_lm {
  int64_t layers, hidden, embed, bptt, chunk, words, half_life;
  int64_t sample; /* number of tokens to generate instead of training; 0: train */
  const char *prompt;
  enum cell { CELL_LSTM, CELL_GRU } cell;
  bool tied;
  double dropout, temperature;
  enum sl_text_level level;
  struct buckets {
    bool asked; /* --buckets is given; else the text is one long sequence */
    int64_t length[SL_MAX_BUCKETS];
    int count;
    bool given; /* the lengths are given; else `count` lengths are chosen */
    enum sl_long longer;
  } buckets;
  struct sl_vocabulary *vocabulary;
  double entropy; /* entropy of the generator, nats a word; 0: the text is a file */
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

/* The token at a line's end. */
static int32_t line_end_token(const struct lstm_lm *lm) {
  return lm->level == SL_TEXT_WORD ? sl_vocabulary_find(lm->vocabulary, "<eos>", 5)
                                   : sl_vocabulary_find(lm->vocabulary, "\n", 1);
}

/* like: a set whose buckets the new one takes, or NULL. */
static enum sl_status make_set(const struct lstm_lm *lm, const struct text_part *part,
                               const struct sl_dataset *like, struct sl_dataset **set) {
  const struct buckets *b = &lm->buckets;
  struct sl_sentences_options sentences = {.end = line_end_token(lm),
                                           .buckets = b->given ? b->length : NULL,
                                           .bucket_count = b->count,
                                           .longer = b->longer};
  int words = (int)sl_vocabulary_size(lm->vocabulary);
  int32_t *tokens = NULL;
  int64_t count;
  enum sl_status status =
      sl_vocabulary_encode(lm->vocabulary, part->text, part->size, &tokens, &count);
  if (like) {
    sentences.buckets = sl_dataset_info(like)->buckets;
    sentences.bucket_count = sl_dataset_info(like)->bucket_count;
  }
  if (status == SL_OK)
    status = b->asked ? sl_sentences_new(part->name, tokens, count, words, &sentences, set)
                      : sl_tokens_new(part->name, tokens, count, lm->bptt, words, set);
  free(tokens);
  return status;
}

/* Opens the vocabulary of the loaded weights, or makes one of the training text. */
static enum sl_status open_vocabulary(const struct cli *cli, struct lstm_lm *lm,
                                      const struct text_part *train) {
  char path[4096];
  if (cli->load) {
    vocabulary_path(cli->load, path, sizeof path);
    enum sl_status status = sl_vocabulary_load(path, &lm->vocabulary);
    if (status == SL_OK && sl_vocabulary_level(lm->vocabulary) != lm->level) {
      fprintf(stderr, "lstm_lm: %s is of another --level\n", path);
      exit(EXIT_USAGE);
    }
    return status;
  }
  return sl_vocabulary_new(lm->level, train->text, train->size, 0, lm->words, &lm->vocabulary);
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train_set,
                                struct sl_dataset **test_set) {
  struct lstm_lm *lm = input;
  struct text_parts parts;
  enum sl_status status = text_parts_open(cli, &parts);
  lm->entropy = parts.entropy;
  if (status == SL_OK) status = open_vocabulary(cli, lm, &parts.train);
  if (status == SL_OK) status = make_set(lm, &parts.train, NULL, train_set);
  if (status == SL_OK)
    status = make_set(lm, &parts.valid, lm->buckets.asked ? *train_set : NULL, test_set);
  text_parts_close(&parts);
  return status;
}

static enum sl_status save(const char *weights, const void *input) {
  const struct lstm_lm *lm = input;
  char path[4096];
  vocabulary_path(weights, path, sizeof path);
  return sl_vocabulary_save(lm->vocabulary, path);
}

/* ---- text from a saved model ---- */

/* Prints words with blanks between them and each line on its own; bytes as they are. */
static void print_tokens(const struct lstm_lm *lm, const int32_t *tokens, int64_t count) {
  bool begun = false;
  for (int64_t i = 0; i < count; i++) {
    const char *word = sl_vocabulary_word(lm->vocabulary, tokens[i]);
    bool ends = lm->level == SL_TEXT_WORD && !strcmp(word, "<eos>");
    if (lm->level == SL_TEXT_WORD && begun && !ends) putchar(' ');
    if (ends)
      putchar('\n');
    else
      fputs(word, stdout);
    begun = !ends;
  }
  putchar('\n');
}

/* The tokens of the prompt after a line's end, so that there is at least one. */
static enum sl_status encode_prompt(const struct lstm_lm *lm, int32_t **tokens, int64_t *count) {
  char text[MOST_PROMPT + 2];
  int size = snprintf(text, sizeof text, "\n%s", lm->prompt ? lm->prompt : "");
  return sl_vocabulary_encode(lm->vocabulary, text, (size_t)size, tokens, count);
}

static enum sl_status sample(struct sl_context *context, const struct cli *cli, void *input) {
  struct lstm_lm *lm = input;
  struct sl_dataset_info data = {0};
  struct sl_model *model = NULL;
  int32_t *tokens = NULL, *prompt = NULL;
  int64_t prompt_count = 0;
  enum sl_status status = open_vocabulary(cli, lm, NULL);
  if (status == SL_OK) data.classes = (int)sl_vocabulary_size(lm->vocabulary);
  if (status == SL_OK) status = sl_model_new(context, &SL_SHAPE(lm->bptt), &model);
  if (status == SL_OK) status = build(model, &data, cli->init, lm);
  if (status == SL_OK && cli->placement) status = sl_place(model, cli->placement);
  if (status == SL_OK && cli->placement_file) status = sl_place_file(model, cli->placement_file);
  if (status == SL_OK) status = sl_model_load(model, cli->load);
  if (status == SL_OK) status = encode_prompt(lm, &prompt, &prompt_count);
  const struct sl_generate_options how = {.seed = cli->seed,
                                          .temperature = (float)lm->temperature,
                                          .prompt = prompt,
                                          .prompt_count = prompt_count,
                                          .math = cli->math};
  if (status == SL_OK) tokens = calloc((size_t)lm->sample, sizeof *tokens);
  if (status == SL_OK) status = sl_generate(model, &how, lm->sample, tokens);
  if (status == SL_OK && lm->prompt)
    printf("%s%s", lm->prompt, lm->level == SL_TEXT_WORD ? " " : "");
  if (status == SL_OK) print_tokens(lm, tokens, lm->sample);
  free(tokens);
  free(prompt);
  sl_model_free(model);
  return status;
}

/* The unit of throughput. */
static const char *unit(const void *input) {
  const struct lstm_lm *lm = input;
  return lm->level == SL_TEXT_WORD ? "words" : "characters";
}

static void tell(const void *input, char *line, size_t size) {
  const struct lstm_lm *lm = input;
  int64_t words = sl_vocabulary_size(lm->vocabulary);
  if (lm->entropy > 0)
    snprintf(line, size, "Generator      %.3f: no model gets below it (%lld words)",
             exp(lm->entropy), (long long)words);
  else
    snprintf(line, size, "Vocabulary     %lld %s", (long long)words, unit(lm));
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
  if (lm->tied && lm->embed != lm->hidden)
    return option_problem("--tied: --embed %lld must be --hidden %lld", (long long)lm->embed,
                          (long long)lm->hidden);
  if (!lm->sample && (lm->prompt || lm->temperature != 1))
    return "--prompt, --temperature: they belong to --sample";
  return NULL;
}

static const char *const levels[] = {[SL_TEXT_WORD] = "word", [SL_TEXT_CHAR] = "char", NULL};
static const char *const cells[] = {[CELL_LSTM] = "lstm", [CELL_GRU] = "gru", NULL};
static const char *const longs[] = {[SL_LONG_SPLIT] = "split", [SL_LONG_DROP] = "drop", NULL};
static const char *const bucket_names[] = {"auto", NULL};

#define FIELD(member) OPTION_FIELD(struct lstm_lm, member), .flags = OPTION_OWN
#define SIZE .least = 1, .most = 100000

static const struct option_row rows[] = {
    {"level", "NAME", "Kind of the tokens: word, char", FIELD(level), .names = levels},
    {"words", "N", "Entries of the vocabulary at most; rarer ones become <unk>", FIELD(words),
     .least = 3, .most = 1e7},
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
     .unset = "all of --bptt", SIZE},
    {"half-life", "N", "Halve the learning rate every N epochs", FIELD(half_life), .unset = "never",
     SIZE},
    {"tied", NULL, "The decoder takes the embedding's weight (--embed = --hidden)", FIELD(tied)},
    {"sample", "N", "Print N tokens drawn from the weights of --load, instead of training",
     FIELD(sample), .least = 1, .most = 1e8},
    {"temperature", "X",
     "Of --sample: below 1 likely tokens become likelier, at 0 the likeliest is taken",
     FIELD(temperature), .least = 0, .most = 1000},
    {"prompt", "TEXT", "Of --sample: beginning of the text", FIELD(prompt), .most = MOST_PROMPT}};

int main(int argc, char **argv) {
  struct lstm_lm lm = {.layers = 2, .hidden = 200, .embed = 200, .words = 10000, .temperature = 1};
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
              .check = check},
      .data = "grammar",
      .epochs = 5,
      .batch = 20,
      .lr = 20,
      .clip = 0.25f,
      .build = build,
      .open_data = open_data,
      .save = save,
      .tell = tell,
      .unit = unit,
      .asks_instead = &lm.sample,
      .instead = sample,
      .half_life = &lm.half_life,
      .chunk = &lm.chunk};
  int code = run_program(&program, argc, argv);
  sl_vocabulary_free(lm.vocabulary);
  return code;
}
