/* starling-tokenize: byte-level BPE: learns a tokenizer, makes token files of texts, and texts of
 * token files. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#include "tools/common/command_line.h"
#include "tools/common/option_table.h"
#include "tools/common/output_bytes.h"

enum { MOST_SPECIALS = 64, MOST_ROWS = 20 };

struct program {
  bool train, decode, plain;
  int64_t vocabulary, least_count;
  unsigned pattern;
  const char *save, *tokenizer, *output, *end;
  const char *specials[MOST_SPECIALS];
  int special_count;
  char **files;
  int file_count;
  const char *given[MOST_ROWS]; /* the text of each row; NULL: not given */
};

/* ---- the command line ---- */

static const char *parse_special(const struct option_row *row, const char *text, void *values) {
  struct program *p = values;
  (void)row;
  if (p->special_count == MOST_SPECIALS) return "given more than 64 times";
  p->specials[p->special_count++] = text;
  return NULL;
}

static const char *const patterns[] = {
    [SL_PATTERN_GPT2] = "gpt2", [SL_PATTERN_LLAMA3] = "llama3", NULL};

#define FIELD(member) OPTION_FIELD(struct program, member)

static const struct option_row rows[] = {
    OPTION_TITLE("Learning a tokenizer:"),
    {"train", NULL, "Learn a tokenizer from the texts", FIELD(train)},
    {"vocabulary", "N", "Tokens that it has: 256 of bytes, special ones, the rest of merges",
     FIELD(vocabulary), .least = 256, .most = 1 << 22},
    {"pattern", "NAME", "What cuts a text into pieces", FIELD(pattern), .names = patterns},
    {"special", "TEXT", "A special token, such as <|endoftext|>; may be given several times",
     .parse = parse_special, .unset = "none"},
    {"least-count", "N", "Merge pairs that occur at least N times", FIELD(least_count), .least = 1,
     .most = 1e15},
    {"save", "FILE", "The tokenizer.json to write", FIELD(save), .flags = OPTION_WRITES},
    OPTION_TITLE("Using one:"),
    {"tokenizer", "FILE", "A tokenizer.json of byte-level BPE", FIELD(tokenizer),
     .flags = OPTION_READS},
    {"output", "FILE", "The token file to write; with --decode the text", FIELD(output),
     .flags = OPTION_WRITES, .letter = 'o'},
    {"end", "TOKEN", "A token of the vocabulary that is put behind each text", FIELD(end)},
    {"plain", NULL, "Special tokens that are written out in a text are text", FIELD(plain)},
    {"decode", NULL, "Make the text of token files", FIELD(decode)}};
_Static_assert(sizeof rows / sizeof *rows <= MOST_ROWS, "a text for each row");

static int take_files(void *input, char **words, int count, const char **why) {
  struct program *p = input;
  (void)why;
  p->files = words;
  p->file_count = count;
  return count;
}

/* The rows behind --train, up to the next title, belong to it. */
static const char *check_learning(const struct program *p) {
  for (size_t i = 2; rows[i].name; i++)
    if (p->given[i]) return option_problem("--%s: needs --train", rows[i].name);
  return NULL;
}

static const char *check(void *input) {
  const struct program *p = input;
  if (p->train == (p->tokenizer != NULL)) return "take either --train or --tokenizer FILE";
  if (!p->file_count) return "no text is named; see --help";
  if (p->train && !p->save) return "--train needs --save FILE";
  if (p->train && (p->decode || p->output || p->end || p->plain))
    return "--decode, --output, --end and --plain need --tokenizer FILE";
  const char *stray = p->train ? NULL : check_learning(p);
  if (stray) return stray;
  if (p->decode && (p->end || p->plain)) return "--end and --plain are not for --decode";
  if (!p->train && !p->decode && !p->output) return "--tokenizer needs --output FILE, or --decode";
  return NULL;
}

static void parse(struct program *p, int argc, char **argv) {
  const struct option_program program = {
      .usage =
          "--train --save FILE TEXT...\n"
          "--tokenizer FILE --output FILE TEXT...\n"
          "--tokenizer FILE --decode TOKENS...",
      .about = "Turn texts into tokens by byte-level BPE.",
      .description =
          "A tokenizer is a tokenizer.json of Hugging Face with the pattern of GPT-2 or of Llama "
          "3; merges and tokens are those of its package tokenizers.\n\n"
          "A token file has integers of 16 bits, or of 32 if the vocabulary needs them, behind the "
          "header of llm.c.",
      .examples =
          "  starling-tokenize --train --vocabulary 512 --save tokenizer.json text.txt\n"
          "  starling-tokenize --tokenizer tokenizer.json -o text.bin text.txt\n"
          "  starling-tokenize --tokenizer tokenizer.json --decode text.bin\n",
      .manual.see_also = "lstm_lm(1), starling-train(1)",
      .sets = {{rows, sizeof rows / sizeof *rows, p, NULL, p->given}},
      .input = p,
      .argument = take_files,
      .check = check};
  option_parse(&program, argc, argv);
}

/* ---- failures ---- */

static int fail(const char *what, const char *why) {
  fprintf(stderr, "starling-tokenize: %s%s%s\n", what, *what ? ": " : "", why);
  return EXIT_FAILED;
}

static int fail_file(const char *path, int error) {
  fprintf(stderr, "starling-tokenize: %s: cannot be written: %s\n", path, strerror(error));
  return EXIT_FAILED;
}

static int fail_library(void) { return fail("", sl_error()); }

/* ---- the three jobs ---- */

/* All texts; to be freed. */
static int read_texts(const struct program *p, char **texts, size_t *sizes, size_t *total) {
  *total = 0;
  for (int i = 0; i < p->file_count; i++) {
    if (sl_text_read(p->files[i], &texts[i], &sizes[i]) != SL_OK) return fail_library();
    *total += sizes[i];
  }
  return EXIT_DONE;
}

static int learn(const struct program *p, const char *const *texts, const size_t *sizes) {
  const struct sl_tokenizer_options options = {.size = p->vocabulary,
                                               .pattern = (enum sl_token_pattern)p->pattern,
                                               .specials = p->specials,
                                               .special_count = p->special_count,
                                               .least_count = p->least_count};
  struct sl_tokenizer *tokenizer = NULL;
  int code = EXIT_DONE;
  if (sl_tokenizer_train(&options, texts, sizes, p->file_count, &tokenizer) != SL_OK ||
      sl_tokenizer_save(tokenizer, p->save) != SL_OK)
    code = fail_library();
  else
    printf("%s: %" PRId64 " tokens%s\n", p->save, sl_tokenizer_size(tokenizer),
           sl_tokenizer_size(tokenizer) < p->vocabulary ? "; the texts have no more pairs" : "");
  sl_tokenizer_close(tokenizer);
  return code;
}

/* The tokens of all texts, one after the other. */
struct tokens {
  int32_t *ids;
  int64_t count;
};

static int append(struct tokens *all, const int32_t *ids, int64_t count) {
  int32_t *grown = realloc(all->ids, (size_t)(all->count + count + 1) * sizeof *grown);
  if (!grown) return fail("", "no memory for the tokens");
  all->ids = grown;
  if (count) memcpy(all->ids + all->count, ids, (size_t)count * sizeof *ids);
  all->count += count;
  return EXIT_DONE;
}

static int encode(const struct program *p, const struct sl_tokenizer *tokenizer, char **texts,
                  const size_t *sizes, struct tokens *all) {
  int32_t end = p->end ? sl_tokenizer_find(tokenizer, p->end, strlen(p->end)) : 0;
  int code = end < 0 ? fail(p->end, "the tokenizer has no such token; see its \"added_tokens\"")
                     : EXIT_DONE;
  for (int i = 0; i < p->file_count && code == EXIT_DONE; i++) {
    int32_t *ids = NULL;
    int64_t count;
    if (sl_tokenizer_encode(tokenizer, texts[i], sizes[i], !p->plain, &ids, &count) != SL_OK)
      return fail_library();
    code = append(all, ids, count);
    free(ids);
    if (code == EXIT_DONE && p->end) code = append(all, &end, 1);
  }
  return code;
}

static enum sl_token_type type_for(const struct sl_tokenizer *tokenizer) {
  return sl_tokenizer_size(tokenizer) <= UINT16_MAX + 1 ? SL_TOKENS_U16 : SL_TOKENS_U32;
}

static int encode_texts(const struct program *p, const struct sl_tokenizer *tokenizer, char **texts,
                        const size_t *sizes, size_t total) {
  struct tokens all = {0};
  enum sl_token_type type = type_for(tokenizer);
  int code = encode(p, tokenizer, texts, sizes, &all);
  if (code == EXIT_DONE && sl_token_file_write(p->output, type, all.ids, all.count) != SL_OK)
    code = fail_library();
  if (code == EXIT_DONE)
    printf("%s: %" PRId64 " tokens of %zu bytes, u%d; a vocabulary of %" PRId64 "\n", p->output,
           all.count, total, type == SL_TOKENS_U16 ? 16 : 32, sl_tokenizer_size(tokenizer));
  free(all.ids);
  return code;
}

static int write_text(const char *path, const char *text, size_t size) {
  int error = path ? output_bytes(path, text, size) : 0;
  if (error) return fail_file(path, error);
  if (path) return EXIT_DONE;
  if (fwrite(text, 1, size, stdout) != size) output_failed(errno);
  return finish_output("starling-tokenize", EXIT_DONE);
}

static int decode_files(const struct program *p, const struct sl_tokenizer *tokenizer) {
  struct tokens all = {0};
  char *text = NULL;
  size_t size;
  int code = EXIT_DONE;
  for (int i = 0; i < p->file_count && code == EXIT_DONE; i++) {
    int32_t *ids;
    int64_t count;
    if (sl_token_file_read(p->files[i], type_for(tokenizer), &ids, &count) != SL_OK) {
      code = fail_library();
      break;
    }
    code = append(&all, ids, count);
    free(ids);
  }
  if (code == EXIT_DONE &&
      sl_tokenizer_decode(tokenizer, all.ids, all.count, &text, &size) != SL_OK)
    code = fail_library();
  if (code == EXIT_DONE) code = write_text(p->output, text, size);
  free(text);
  free(all.ids);
  return code;
}

static int work(const struct program *p, char **texts, size_t *sizes) {
  struct sl_tokenizer *tokenizer = NULL;
  size_t total = 0;
  int code = EXIT_DONE;
  if (p->tokenizer && sl_tokenizer_open(p->tokenizer, &tokenizer) != SL_OK) code = fail_library();
  if (code == EXIT_DONE && !p->decode) code = read_texts(p, texts, sizes, &total);
  if (code != EXIT_DONE)
    ;
  else if (p->train)
    code = learn(p, (const char *const *)texts, sizes);
  else if (p->decode)
    code = decode_files(p, tokenizer);
  else
    code = encode_texts(p, tokenizer, texts, sizes, total);
  sl_tokenizer_close(tokenizer);
  return code;
}

int main(int argc, char **argv) {
  struct program p = {.vocabulary = 8192, .least_count = 1};
  parse(&p, argc, argv);
  char **texts = calloc((size_t)p.file_count, sizeof *texts);
  size_t *sizes = calloc((size_t)p.file_count, sizeof *sizes);
  int code = texts && sizes ? work(&p, texts, sizes) : fail("", "no memory");
  for (int i = 0; texts && i < p.file_count; i++) free(texts[i]);
  free(texts);
  free(sizes);
  return code;
}
