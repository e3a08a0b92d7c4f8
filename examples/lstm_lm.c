/* A language model of stacked LSTM layers (Zaremba et al., arXiv 1409.2329), learned by truncated
 * back-propagation through time (the text is cut into as many runs as a batch has rows), or line by
 * line, with lines of like length in a batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/run.h"

enum {
  MOST_LAYERS = 64,
  MOST_PROMPT = 10000,
  GENERATED_SENTENCES = 20000,
  GENERATED_TEST_SENTENCES = 2000
};

struct lstm_lm {
  int64_t layers, hidden, embed, bptt, chunk, words, half_life;
  int64_t sample; /* tokens to generate instead of training; 0: train */
  const char *prompt;
  bool gru, tied;
  double dropout, temperature;
  enum sl_text_level level;
  struct buckets {
    bool asked; /* else one long text */
    int64_t length[SL_MAX_BUCKETS];
    int count;
    bool given; /* the lengths; else so many are to be chosen */
    enum sl_long longer;
  } buckets;
  struct sl_vocabulary *vocabulary;
  double entropy; /* of the generator, nats a word; 0: a file */
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
    /* the embedding's usual N(0, 1) would be far too much for a decoder */
    if (init == SL_INIT_DEFAULT) table.init = SL_INIT_UNIFORM;
  }
  enum sl_status status =
      sl_embedding(model, "embed",
                   &(struct sl_embedding_options){
                       .layer = table, .vocabulary = data->classes, .features = lm->embed});
  for (int64_t i = 0; i <= lm->layers && status == SL_OK; i++) {
    /* between all layers, but never in time */
    snprintf(name, sizeof name, "drop%lld", (long long)i);
    if (lm->dropout > 0) status = sl_dropout(model, name, &dropout);
    if (i == lm->layers || status != SL_OK) break;
    snprintf(name, sizeof name, "%s%lld", lm->gru ? "gru" : "lstm", (long long)i);
    status = lm->gru ? sl_gru(model, name, &gru) : sl_lstm(model, name, &lstm);
  }
  if (status != SL_OK) return status;
  return sl_dense(
      model, "decoder",
      &(struct sl_dense_options){.layer = decoder, .features = data->classes, .positions = true});
}

/* ---- the text ---- */

struct part {
  const char *name, *text;
  size_t size;
};

/* The token at a line's end. */
static int32_t line_end_token(const struct lstm_lm *lm) {
  return lm->level == SL_TEXT_WORD ? sl_vocabulary_find(lm->vocabulary, "<eos>", 5)
                                   : sl_vocabulary_find(lm->vocabulary, "\n", 1);
}

/* like: the set whose buckets this one is to have, or NULL. */
static enum sl_status make_set(const struct lstm_lm *lm, const struct part *part,
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

static void vocabulary_path(const char *weights, char *path, size_t size) {
  snprintf(path, size, "%s.vocabulary.json", weights);
}

/* The vocabulary of the weights that are loaded, else the training text's. */
static enum sl_status open_vocabulary(const struct cli *cli, struct lstm_lm *lm,
                                      const struct part *train) {
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

/* The end of the line that `at` is in, or the text's. */
static size_t line_end(const char *text, size_t size, size_t at) {
  while (at < size && (!at || text[at - 1] != '\n')) at++;
  return at < size ? at : size;
}

/* Nine tenths to learn from; the next twentieth to validate on; the last one is left untouched. */
static void split(const char *text, size_t size, struct part *train, struct part *valid) {
  size_t first = line_end(text, size, size / 10 * 9);
  size_t second = line_end(text, size, first + size / 20);
  *train = (struct part){"the text, training part", text, first};
  *valid = (struct part){"the text, validation part", text + first, second - first};
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train_set,
                                struct sl_dataset **test_set) {
  struct lstm_lm *lm = input;
  struct part train = {0}, valid = {0};
  char *text = NULL, *more = NULL;
  size_t size;
  enum sl_status status;
  if (!strcmp(cli->data, "grammar")) {
    train.name = "generated sentences, training set";
    valid.name = "generated sentences, validation set";
    status = sl_grammar_new(cli->seed, true, GENERATED_SENTENCES, &text, &train.size, &lm->entropy);
    if (status == SL_OK)
      status = sl_grammar_new(cli->seed, false, GENERATED_TEST_SENTENCES, &more, &valid.size, NULL);
    train.text = text;
    valid.text = more;
  } else {
    status = sl_text_read(cli->data, &text, &size);
    if (status == SL_OK) split(text, size, &train, &valid);
  }
  if (status == SL_OK) status = open_vocabulary(cli, lm, &train);
  if (status == SL_OK) status = make_set(lm, &train, NULL, train_set);
  if (status == SL_OK)
    status = make_set(lm, &valid, lm->buckets.asked ? *train_set : NULL, test_set);
  free(text);
  free(more);
  return status;
}

static enum sl_status save(const char *weights, const void *input) {
  const struct lstm_lm *lm = input;
  char path[4096];
  vocabulary_path(weights, path, sizeof path);
  return sl_vocabulary_save(lm->vocabulary, path);
}

/* ---- text from a saved model ---- */

/* Words with blanks between, lines as they were; bytes as they are. */
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

/* The prompt's tokens behind a line's end, so that there is always one. */
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

static void tell(const void *input, char *line, size_t size) {
  const struct lstm_lm *lm = input;
  int64_t words = sl_vocabulary_size(lm->vocabulary);
  if (lm->entropy > 0)
    snprintf(line, size, "Generator      %.3f: no model gets below it (%lld words)",
             exp(lm->entropy), (long long)words);
  else
    snprintf(line, size, "Vocabulary     %lld %s", (long long)words,
             lm->level == SL_TEXT_WORD ? "words" : "characters");
}

/* ---- its own options ---- */

enum {
  KEY_LEVEL = 1000,
  KEY_WORDS,
  KEY_CELL,
  KEY_LAYERS,
  KEY_HIDDEN,
  KEY_EMBED,
  KEY_DROPOUT,
  KEY_BPTT,
  KEY_CHUNK,
  KEY_HALF_LIFE,
  KEY_TIED,
  KEY_SAMPLE,
  KEY_TEMPERATURE,
  KEY_PROMPT,
  KEY_BUCKETS,
  KEY_LONG
};

static const struct argp_option options[] = {
    {"level", KEY_LEVEL, "NAME", 0, "What a token is: word (default), char", 0},
    {"words", KEY_WORDS, "N", 0, "Most entries of the vocabulary; rarer ones become <unk> (10000)",
     0},
    {"cell", KEY_CELL, "NAME", 0, "What the layers are: lstm (default), gru", 0},
    {"layers", KEY_LAYERS, "N", 0, "Recurrent layers (default 2)", 0},
    {"hidden", KEY_HIDDEN, "N", 0, "Width of each (default 200)", 0},
    {"embed", KEY_EMBED, "N", 0, "Width of the embedding (default 200)", 0},
    {"dropout", KEY_DROPOUT, "X", 0, "Between the layers (default 0)", 0},
    {"bptt", KEY_BPTT, "N", 0, "Time steps that the gradient goes back (default 35)", 0},
    {"buckets", KEY_BUCKETS, "LIST", 0,
     "Learn line by line, lines sorted into buckets of these lengths in tokens (8,16,32), or of so "
     "many chosen ones (auto, auto:N); default: one long text in windows of --bptt",
     0},
    {"long", KEY_LONG, "NAME", 0, "Lines longer than the last bucket: split (default), drop", 0},
    {"chunk", KEY_CHUNK, "N", 0,
     "Time steps a task, so that layers overlap (default: all of --bptt)", 0},
    {"half-life", KEY_HALF_LIFE, "N", 0, "Halve the learning rate every N epochs (default: never)",
     0},
    {"tied", KEY_TIED, NULL, 0, "The decoder takes the embedding's weight (--embed = --hidden)", 0},
    {"sample", KEY_SAMPLE, "N", 0,
     "Print N tokens drawn from the weights of --load, instead of training", 0},
    {"temperature", KEY_TEMPERATURE, "X", 0,
     "Of --sample: below 1 is surer, 0 always takes the likeliest (default 1)", 0},
    {"prompt", KEY_PROMPT, "TEXT", 0, "Of --sample: what the text begins with", 0},
    {0}};

/* "8,16,32" or "auto" or "auto:N". */
static void read_buckets(struct argp_state *state, const char *text, struct buckets *b) {
  char copy[1024], *rest = copy;
  *b = (struct buckets){.asked = true, .count = 5, .longer = b->longer};
  if (!strncmp(text, "auto", 4) && (!text[4] || text[4] == ':')) {
    if (text[4]) b->count = (int)cli_whole(state, "--buckets auto:N", text + 5, 1, SL_MAX_BUCKETS);
    return;
  }
  if (strlen(text) >= sizeof copy) cli_refuse(state, "--buckets: the list is too long");
  snprintf(copy, sizeof copy, "%s", text);
  b->given = true;
  b->count = 0;
  for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
    if (b->count == SL_MAX_BUCKETS)
      cli_refuse(state, "--buckets: at most %d lengths", SL_MAX_BUCKETS);
    b->length[b->count] = cli_whole(state, "--buckets", item, 1, 1000000);
    if (b->count && b->length[b->count] <= b->length[b->count - 1])
      cli_refuse(state, "--buckets %s: lengths must rise", text);
    b->count++;
  }
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct lstm_lm *lm = state->input;
  switch (key) {
    case KEY_LEVEL:
      if (sl_text_level_parse(text, &lm->level) != SL_OK)
        cli_refuse(state, "--level: %s", sl_error());
      break;
    case KEY_CELL:
      lm->gru = !strcmp(text, "gru");
      if (!lm->gru && strcmp(text, "lstm"))
        cli_refuse(state, "--cell '%s': unknown; use lstm or gru", text);
      break;
    case KEY_WORDS: lm->words = cli_whole(state, "--words", text, 3, 10000000); break;
    case KEY_LAYERS: lm->layers = cli_whole(state, "--layers", text, 1, MOST_LAYERS); break;
    case KEY_HIDDEN: lm->hidden = cli_whole(state, "--hidden", text, 1, 100000); break;
    case KEY_EMBED: lm->embed = cli_whole(state, "--embed", text, 1, 100000); break;
    case KEY_DROPOUT: lm->dropout = cli_real(state, "--dropout", text, 0, 0.99); break;
    case KEY_BPTT: lm->bptt = cli_whole(state, "--bptt", text, 1, 100000); break;
    case KEY_BUCKETS: read_buckets(state, text, &lm->buckets); break;
    case KEY_LONG:
      lm->buckets.longer = !strcmp(text, "drop") ? SL_LONG_DROP : SL_LONG_SPLIT;
      if (strcmp(text, "drop") && strcmp(text, "split"))
        cli_refuse(state, "--long '%s': unknown; use split or drop", text);
      break;
    case KEY_CHUNK: lm->chunk = cli_whole(state, "--chunk", text, 1, 100000); break;
    case KEY_HALF_LIFE: lm->half_life = cli_whole(state, "--half-life", text, 1, 100000); break;
    case KEY_TIED: lm->tied = true; break;
    case KEY_SAMPLE: lm->sample = cli_whole(state, "--sample", text, 1, 100000000); break;
    case KEY_TEMPERATURE: lm->temperature = cli_real(state, "--temperature", text, 0, 1000); break;
    case KEY_PROMPT:
      if (strlen(text) > MOST_PROMPT)
        cli_refuse(state, "--prompt: at most %d bytes, not %zu", MOST_PROMPT, strlen(text));
      lm->prompt = text;
      break;
    case ARGP_KEY_END:
      if (lm->buckets.asked && lm->bptt)
        cli_refuse(state, "--buckets and --bptt: a line is one sequence; give one of the two");
      if (!lm->buckets.asked && lm->buckets.longer == SL_LONG_DROP)
        cli_refuse(state, "--long: it belongs to --buckets");
      if (!lm->bptt) lm->bptt = 35;
      if (lm->tied && lm->embed != lm->hidden)
        cli_refuse(state, "--tied: --embed %lld must be --hidden %lld", (long long)lm->embed,
                   (long long)lm->hidden);
      if (!lm->sample && (lm->prompt || lm->temperature != 1))
        cli_refuse(state, "--prompt, --temperature: they belong to --sample");
      break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp own = {options, parse_option, NULL, NULL, NULL, NULL, NULL};
  struct lstm_lm lm = {.layers = 2, .hidden = 200, .embed = 200, .words = 10000, .temperature = 1};
  const struct program program = {
      .about = "Train a language model of LSTM layers on a text file or generated sentences.",
      .data = "grammar",
      .epochs = 5,
      .batch = 20,
      .lr = 20,
      .clip = 0.25f,
      .options = &own,
      .input = &lm,
      .build = build,
      .open_data = open_data,
      .save = save,
      .tell = tell,
      .asks_instead = &lm.sample,
      .instead = sample,
      .half_life = &lm.half_life,
      .chunk = &lm.chunk};
  int code = run_program(&program, argc, argv);
  sl_vocabulary_free(lm.vocabulary);
  return code;
}
