#include "tools/train/language.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/replace.h"

int32_t language_line_end(const struct language *lm) {
  if (lm->tokenizer) return sl_tokenizer_find(lm->tokenizer, "\n", 1);
  return lm->level == SL_TEXT_WORD ? sl_vocabulary_find(lm->vocabulary, "<eos>", 5)
                                   : sl_vocabulary_find(lm->vocabulary, "\n", 1);
}

int64_t language_size(const struct language *lm) {
  return lm->tokenizer    ? sl_tokenizer_size(lm->tokenizer)
         : lm->vocabulary ? sl_vocabulary_size(lm->vocabulary)
                          : lm->words;
}

static int64_t classes_of(const struct language *lm, const void *input) {
  return lm->classes ? lm->classes(input) : language_size(lm);
}

void language_close(struct language *lm) {
  sl_tokenizer_close(lm->tokenizer);
  sl_vocabulary_free(lm->vocabulary);
  lm->tokenizer = NULL;
  lm->vocabulary = NULL;
}

/* The tokenizer of --tokenizer, or the one beside the loaded weights; NULL where there is none. */
static enum sl_status open_tokenizer(const struct cli *cli, struct language *lm) {
  char path[4096];
  if (lm->tokenizer_file) return sl_tokenizer_open(lm->tokenizer_file, &lm->tokenizer);
  if (!cli->load || access(tokenizer_path(cli->load, path, sizeof path), F_OK) != 0) return SL_OK;
  return sl_tokenizer_open(path, &lm->tokenizer);
}

static void fail_usage(const struct language *lm, const char *problem) {
  fprintf(stderr, "%s: %s\n", lm->program, problem);
  exit(EXIT_USAGE);
}

/* That of the loaded weights. */
static enum sl_status load_vocabulary(const char *weights, struct language *lm) {
  char path[4096];
  vocabulary_path(weights, path, sizeof path);
  if (path_names_folder(weights) && access(path, F_OK) != 0)
    fail_usage(lm,
               option_problem("%s: has no tokenizer.json; name one by --tokenizer FILE", weights));
  enum sl_status status = sl_vocabulary_load(path, &lm->vocabulary);
  if (status == SL_OK && sl_vocabulary_level(lm->vocabulary) != lm->level)
    fail_usage(lm, option_problem("%s is of another --level", path));
  return status;
}

enum sl_status language_open(const struct cli *cli, struct language *lm,
                             const struct text_part *train) {
  enum sl_status status = open_tokenizer(cli, lm);
  if (status != SL_OK || lm->tokenizer) return status;
  if (cli->load) return load_vocabulary(cli->load, lm);
  return sl_vocabulary_new(lm->level, train->text, train->size, 0, lm->words, &lm->vocabulary);
}

static enum sl_status encode(const struct language *lm, const char *text, size_t size,
                             int32_t **tokens, int64_t *count) {
  if (lm->tokenizer) return sl_tokenizer_encode(lm->tokenizer, text, size, true, tokens, count);
  return sl_vocabulary_encode(lm->vocabulary, text, size, tokens, count);
}

static enum sl_status make_set(const struct language *lm, const struct text_part *part,
                               language_set *make, const void *input, const struct sl_dataset *like,
                               struct sl_dataset **set) {
  int32_t *tokens = NULL;
  int64_t count;
  enum sl_status status = encode(lm, part->text, part->size, &tokens, &count);
  if (status == SL_OK) status = make(input, part, tokens, count, like, set);
  free(tokens);
  return status;
}

static bool is_token_file(const char *path) {
  size_t length = strlen(path);
  return length > 4 && !strcmp(path + length - 4, ".bin");
}

/* llm.c's header says the type; a file without one has u16, as nanoGPT's. */
static enum sl_token_type token_type(const char *path) {
  uint32_t magic = 0;
  FILE *file = fopen(path, "rb");
  if (file && fread(&magic, sizeof magic, 1, file) != 1) magic = 0;
  if (file) fclose(file);
  return magic == 20240801 ? SL_TOKENS_U32 : SL_TOKENS_U16;
}

/* Nine tenths are for training, the next twentieth for validation, as of a text. */
static enum sl_status open_token_file(const struct cli *cli, struct language *lm, const void *input,
                                      int64_t steps, struct sl_dataset **train,
                                      struct sl_dataset **test) {
  enum sl_status status = open_tokenizer(cli, lm);
  if (status != SL_OK) return status;
  int64_t classes = classes_of(lm, input);
  struct sl_token_file_options part = {
      .type = token_type(cli->data), .to = 0.9, .steps = steps, .classes = (int)classes};
  if (!steps)
    fail_usage(
        lm, option_problem("--data %s: a token file has no lines; leave --buckets out", cli->data));
  status = sl_token_file_open(cli->data, &part, train);
  part.from = 0.9;
  part.to = 0.95;
  return status == SL_OK ? sl_token_file_open(cli->data, &part, test) : status;
}

bool language_takes_text(const void *input) {
  (void)input;
  return true;
}

enum sl_status language_open_data(const struct cli *cli, struct language *lm, language_set *make,
                                  const void *input, int64_t steps, struct sl_dataset **train,
                                  struct sl_dataset **test) {
  struct text_parts parts;
  if (is_token_file(cli->data)) return open_token_file(cli, lm, input, steps, train, test);
  enum sl_status status = text_parts_open(cli, &parts);
  lm->entropy = parts.entropy;
  if (status == SL_OK) status = language_open(cli, lm, &parts.train);
  if (status == SL_OK) status = make_set(lm, &parts.train, make, input, NULL, train);
  if (status == SL_OK) status = make_set(lm, &parts.valid, make, input, *train, test);
  text_parts_close(&parts);
  return status;
}

enum sl_status language_save(const char *weights, const struct language *lm) {
  char path[4096];
  if (lm->tokenizer)
    return sl_tokenizer_save(lm->tokenizer, tokenizer_path(weights, path, sizeof path));
  if (!lm->vocabulary) return SL_OK;
  return sl_vocabulary_save(lm->vocabulary, vocabulary_path(weights, path, sizeof path));
}

const char *language_beside(const struct language *lm, const char *weights, int index, char *path,
                            size_t size) {
  const char *tokenizer = lm->tokenizer_file;
  if (index > 1 || (index && tokenizer)) return NULL;
  if (index) return vocabulary_path(weights, path, size);
  tokenizer_path(weights, path, size);
  return tokenizer && sl__is_same_inode(path, tokenizer) ? NULL : path;
}

/* ---- text from a saved model ---- */

static enum sl_status print_pieces(const struct language *lm, const int32_t *tokens,
                                   int64_t count) {
  char *text = NULL;
  size_t size = 0;
  enum sl_status status = sl_tokenizer_decode(lm->tokenizer, tokens, count, &text, &size);
  if (status == SL_OK) fwrite(text, 1, size, stdout);
  free(text);
  putchar('\n');
  /* no option is wrong: a tokenizer whose ids have gaps */
  return status == SL_BAD_ARGUMENT ? SL_BAD_FILE : status;
}

/* Prints words with blanks between them and each line on its own; bytes as they are. */
static void print_words(const struct language *lm, const int32_t *tokens, int64_t count) {
  bool begun = false;
  for (int64_t i = 0; i < count; i++) {
    const char *word = sl_vocabulary_word(lm->vocabulary, tokens[i]);
    if (!word) word = "<unk>";
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

/* The tokens of the prompt: a vocabulary's come after a line's end. There is at least one. */
static enum sl_status encode_prompt(const struct language *lm, int32_t **tokens, int64_t *count) {
  char text[LANGUAGE_MOST_PROMPT + 2];
  bool begins_line = !lm->tokenizer || !lm->prompt || !*lm->prompt;
  int size =
      snprintf(text, sizeof text, "%s%s", begins_line ? "\n" : "", lm->prompt ? lm->prompt : "");
  return encode(lm, text, (size_t)size, tokens, count);
}

/* Draws tokens behind the first `count` of `all`, which has room for `more`. */
static enum sl_status draw(struct sl_model *model, const struct cli *cli, const struct language *lm,
                           int64_t context, int32_t *all, int64_t count, int64_t more) {
  enum sl_status status = SL_OK;
  const struct sl_shape *out = sl_model_output(model);
  int64_t words = language_size(lm), classes = out->dim[out->ndim - 1];
  int64_t from = context && count > context ? count - context : 0;
  for (uint64_t round = 0; more && status == SL_OK; round++) {
    int64_t room = context ? context - (count - from) + 1 : more, now = room < more ? room : more;
    const struct sl_generate_options how = {.seed = cli->seed + round,
                                            .temperature = (float)lm->temperature,
                                            .prompt = all + from,
                                            .prompt_count = count - from,
                                            .math = cli->math,
                                            .words = words < classes ? words : classes};
    status = sl_generate(model, &how, now, all + count);
    count += now;
    more -= now;
    from = count - (context + 1) / 2;
  }
  return status;
}

enum sl_status language_sample(struct sl_context *context, const struct cli *cli,
                               struct language *lm, language_build *build, const void *input,
                               int64_t steps, int64_t longest) {
  struct sl_dataset_info data = {0};
  struct sl_model *model = NULL;
  int32_t *tokens = NULL, *prompt = NULL;
  int64_t count = 0;
  enum sl_status status = language_open(cli, lm, NULL);
  if (status == SL_OK) data.classes = (int)classes_of(lm, input);
  if (status == SL_OK) status = sl_model_new(context, &SL_SHAPE(steps), &model);
  if (status == SL_OK) status = build(model, &data, cli->init, input);
  if (status == SL_OK && cli->placement) status = sl_place(model, cli->placement);
  if (status == SL_OK && cli->placement_file) status = sl_place_file(model, cli->placement_file);
  if (status == SL_OK)
    status = lm->load ? lm->load(model, cli->load, input) : sl_model_load(model, cli->load);
  if (status == SL_OK) status = encode_prompt(lm, &prompt, &count);
  if (status == SL_OK) tokens = calloc((size_t)(count + lm->sample), sizeof *tokens);
  if (status == SL_OK && !tokens) status = SL_NO_MEMORY;
  if (status == SL_OK) memcpy(tokens, prompt, (size_t)count * sizeof *tokens);
  if (status == SL_OK) status = draw(model, cli, lm, longest, tokens, count, lm->sample);
  if (status == SL_OK && lm->prompt)
    printf("%s%s", lm->prompt, lm->vocabulary && lm->level == SL_TEXT_WORD ? " " : "");
  if (status == SL_OK && lm->tokenizer) status = print_pieces(lm, tokens + count, lm->sample);
  if (status == SL_OK && lm->vocabulary) print_words(lm, tokens + count, lm->sample);
  free(tokens);
  free(prompt);
  sl_model_free(model);
  return status;
}

const char *language_unit(const struct language *lm) {
  if (!lm->vocabulary) return "tokens";
  return lm->level == SL_TEXT_WORD ? "words" : "characters";
}

void language_tell(const struct language *lm, char *line, size_t size) {
  int64_t words = language_size(lm);
  if (lm->entropy > 0)
    snprintf(line, size, "Generator      %.3f: no model gets below it (%lld words)",
             exp(lm->entropy), (long long)words);
  else
    snprintf(line, size, "Vocabulary     %lld %s", (long long)words, language_unit(lm));
}

const char *language_check(const struct language *lm) {
  if (!lm->sample && (lm->prompt || lm->temperature != 1))
    return "--prompt, --temperature: they belong to --sample";
  return NULL;
}

const char *const language_levels[] = {[SL_TEXT_WORD] = "word", [SL_TEXT_CHAR] = "char", NULL};
