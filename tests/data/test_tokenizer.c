/* Tokenizers. tests/fixtures has two that Hugging Face's tokenizers trained, and their tokens of a
 * text that is hard to cut (tools/make_fixture.py tokenizers): ours must have the same tokens, and
 * learn the same merges. Pieces are compared with ones worked out by hand; files are damaged. */
#include <jansson.h>

#include <starling/text.h>

#include "data/tokenizer.h"
#include "tests/common/files.h"

static const char *const pattern_names[] = {"gpt2", "llama3"};
static char *hard_text;
static size_t hard_size;

static const char *fixture(const char *format, const char *name) {
  static char path[4096];
  int end = snprintf(path, sizeof path, "%s/tests/fixtures/", source_folder());
  snprintf(path + end, sizeof path - (size_t)end, format, name);
  return path;
}

static struct sl_tokenizer *open_fixture(int pattern) {
  struct sl_tokenizer *t;
  OK(sl_tokenizer_open(fixture("tokenizer_%s.json", pattern_names[pattern]), &t));
  return t;
}

static struct sl_tokenizer *train(enum sl_token_pattern pattern, int64_t size, const char *text,
                                  size_t length) {
  static const char *const specials[] = {"<|endoftext|>", "<|\xc3\xbc x|>"};
  struct sl_tokenizer *t;
  OK(sl_tokenizer_train(
      &(struct sl_tokenizer_options){
          .size = size, .pattern = pattern, .specials = specials, .special_count = 2},
      &text, &length, 1, &t));
  return t;
}

/* ---- pieces ---- */

/* The text's pieces, a '|' behind each. */
static void check_pieces(enum sl_token_pattern pattern, const char *text, const char *expected) {
  char found[400] = "";
  size_t size = strlen(text);
  char *block = malloc(size), *at = block; /* so that the sanitizer sees a read behind it */
  memcpy(block, text, size);
  while (size > 0) {
    size_t length = sl__piece_length(pattern, at, size);
    assert_true(length > 0 && length <= size);
    strncat(found, at, length);
    strcat(found, "|");
    at += length;
    size -= length;
  }
  free(block);
  assert_string_equal(found, expected);
}

static void test_gpt2_pieces(void **state) {
  (void)state;
  check_pieces(SL_PATTERN_GPT2, "I'll say we've don't 'd", "I|'ll| say| we|'ve| don|'t| '|d|");
  check_pieces(SL_PATTERN_GPT2, "DON'T it'S", "DON|'|T| it|'|S|");
  check_pieces(SL_PATTERN_GPT2, "a  b   \n c\n", "a| | b|   \n| c|\n|");
  check_pieces(SL_PATTERN_GPT2, "12345 x9!? \t", "12345| x|9|!?| \t|");
  check_pieces(SL_PATTERN_GPT2, "\n\nx\r\ny", "\n|\n|x|\r|\n|y|");
  check_pieces(SL_PATTERN_GPT2, "\xc3\xa9t\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac\xe3\x80\x82",
               "\xc3\xa9t\xc3\xa9| \xe6\x97\xa5\xe6\x9c\xac|\xe3\x80\x82|");
  check_pieces(SL_PATTERN_GPT2,
               "a\xc2\xa0\xc2\xa0"
               "b",
               "a|\xc2\xa0|\xc2\xa0|b|");
}

static void test_llama3_pieces(void **state) {
  (void)state;
  check_pieces(SL_PATTERN_LLAMA3, "I'll DON'T 'RE x'\xc5\xbf", "I|'ll| DON|'T| '|RE| x|'\xc5\xbf|");
  check_pieces(SL_PATTERN_LLAMA3, "1234567 12", "123|456|7| |12|");
  check_pieces(SL_PATTERN_LLAMA3, "a  b \n\n  c\n", "a| | b| \n\n| | c|\n|");
  check_pieces(SL_PATTERN_LLAMA3, "\tx (y) --\r\n\r\nz", "\tx| (|y|)| --\r\n\r\n|z|");
  check_pieces(SL_PATTERN_LLAMA3, "\nx \r\n y  ", "\n|x| \r\n| y|  |");
}

/* A byte that is no UTF-8 is a character that is no letter: it has its place, and its bytes. */
static void test_bytes_that_are_no_utf8(void **state) {
  (void)state;
  check_pieces(SL_PATTERN_GPT2,
               "ab\xff"
               "cd",
               "ab|\xff|cd|");
  check_pieces(SL_PATTERN_GPT2, "x \xed\xa0\x80", "x| \xed\xa0\x80|"); /* a surrogate */
  check_pieces(SL_PATTERN_LLAMA3, "a\xc3", "a|\xc3|");                 /* cut short */
  check_pieces(SL_PATTERN_GPT2, "\xc0\xaf\xf8z", "\xc0\xaf\xf8|z|");   /* overlong, too large */
}

static void test_blanks(void **state) {
  (void)state;
  assert_int_equal(sl__blanks_at_begin(" \t\xe3\x80\x80x ", 7), 5);
  assert_int_equal(sl__blanks_at_end(" x \xc2\xa0\n", 6), 4);
  assert_int_equal(sl__blanks_at_end("\x80\x80", 2), 0);
  assert_int_equal(sl__blanks_at_end("\xe3\x80\x80", 3), 3);
  assert_int_equal(sl__blanks_at_end("", 0), 0);
  assert_int_equal(sl__blanks_at_end("\x1c", 1), 0); /* Python's blank, but not \s */
}

/* ---- the same as Hugging Face's ---- */

/* Encodes, compares with `expected` (NULL: nothing) and decodes. Returns the number of tokens. */
static int64_t check_round_trip(const struct sl_tokenizer *t, const char *text, size_t size,
                                const json_t *expected) {
  int32_t *tokens;
  int64_t count;
  char *again, *block = malloc(size ? size : 1);
  size_t length;
  memcpy(block, text, size);
  OK(sl_tokenizer_encode(t, block, size, true, &tokens, &count));
  free(block);
  if (expected) assert_int_equal(count, json_array_size(expected));
  for (int64_t i = 0; expected && i < count; i++)
    assert_int_equal(tokens[i], json_integer_value(json_array_get(expected, (size_t)i)));
  OK(sl_tokenizer_decode(t, tokens, count, &again, &length));
  assert_int_equal(length, size);
  assert_memory_equal(again, text, size);
  free(tokens);
  free(again);
  return count;
}

static void check_equal(const struct sl_tokenizer *a, const struct sl_tokenizer *b) {
  size_t length, other;
  assert_int_equal(sl_tokenizer_size(a), sl_tokenizer_size(b));
  for (int64_t id = 0; id < sl_tokenizer_size(a); id++) {
    const char *bytes = sl_tokenizer_token(a, id, &length);
    assert_memory_equal(bytes, sl_tokenizer_token(b, id, &other), length);
    assert_int_equal(length, other);
    assert_int_equal(sl_tokenizer_is_special(a, id), sl_tokenizer_is_special(b, id));
    assert_int_equal(sl_tokenizer_find(b, bytes, length), id);
  }
  assert_int_equal(a->pair_count, b->pair_count);
  assert_memory_equal(a->pairs, b->pairs, a->pair_count * sizeof *a->pairs);
}

static void test_hugging_face(void **state) {
  (void)state;
  json_t *ids = json_load_file(fixture("%s", "tokenizer_ids.json"), 0, NULL);
  assert_non_null(ids);
  for (int p = 0; p < 2; p++) {
    const json_t *expected = json_object_get(ids, pattern_names[p]);
    struct sl_tokenizer *theirs = open_fixture(p), *again;
    struct sl_tokenizer *ours = train((enum sl_token_pattern)p, 400, hard_text, hard_size);
    assert_true(json_array_size(expected) > 500);
    check_equal(ours, theirs);
    check_round_trip(ours, hard_text, hard_size, expected);
    check_round_trip(theirs, hard_text, hard_size, expected);
    OK(sl_tokenizer_save(theirs, in_folder("saved.json")));
    OK(sl_tokenizer_open(in_folder("saved.json"), &again));
    check_equal(again, theirs);
    check_round_trip(again, hard_text, hard_size, expected);
    sl_tokenizer_close(ours);
    sl_tokenizer_close(theirs);
    sl_tokenizer_close(again);
  }
  json_decref(ids);
}

static void test_all_bytes(void **state) {
  (void)state;
  char text[65536 + 512];
  size_t size = 0;
  for (int a = 0; a < 256; a++)
    for (int b = 0; b < 256; b += (a < 128 ? 8 : 1)) {
      text[size++] = (char)a;
      text[size++] = (char)b;
      if (size + 2 > sizeof text) size = 0;
    }
  for (int p = 0; p < 2; p++) {
    struct sl_tokenizer *t = open_fixture(p);
    check_round_trip(t, text, size, NULL);
    for (int b = 0; b < 256; b++) {
      char byte = (char)b;
      assert_int_equal(check_round_trip(t, &byte, 1, NULL), 1);
      assert_int_equal(sl_tokenizer_find(t, &byte, 1), t->bytes[b]);
    }
    check_round_trip(t, "", 0, NULL);
    sl_tokenizer_close(t);
  }
}

/* A piece that is far too long for a search through all its pairs at each merge. */
static void test_long_piece(void **state) {
  (void)state;
  const size_t size = 300000;
  char *text = malloc(size);
  for (size_t i = 0; i < size; i++) text[i] = "abab"[i * 7 % 11 % 4];
  struct sl_tokenizer *t = train(SL_PATTERN_GPT2, 300, text, size);
  assert_true(check_round_trip(t, text, size, NULL) < (int64_t)size / 4);
  sl_tokenizer_close(t);
  free(text);
}

/* ---- special tokens ---- */

static void check_tokens(const struct sl_tokenizer *t, const char *text, bool specials,
                         const char *expected) {
  char found[400] = "";
  int32_t *tokens;
  int64_t count;
  size_t length;
  OK(sl_tokenizer_encode(t, text, strlen(text), specials, &tokens, &count));
  for (int64_t i = 0; i < count; i++)
    strcat(strcat(found, sl_tokenizer_token(t, tokens[i], &length)), "|");
  assert_string_equal(found, expected);
  free(tokens);
}

static struct sl_tokenizer *open_changed(const char *from, const char *to);

static void test_specials(void **state) {
  (void)state;
  struct sl_tokenizer *t = train(SL_PATTERN_GPT2, 259, "ababab", 6);
  check_tokens(t, "ab<|endoftext|>ab", true, "ab|<|endoftext|>|ab|");
  check_tokens(t, "<|endoftext|", true, "<|||e|n|d|o|f|t|e|x|t|||");
  check_tokens(t, "<|endoftext|>", false, "<|||e|n|d|o|f|t|e|x|t|||>|");
  check_tokens(t, "<|\xc3\xbc x|><|\xc3\xbc x|>", true, "<|\xc3\xbc x|>|<|\xc3\xbc x|>|");
  assert_true(sl_tokenizer_is_special(t, 0) && sl_tokenizer_is_special(t, 1));
  assert_false(sl_tokenizer_is_special(t, 2) || sl_tokenizer_is_special(t, -1) ||
               sl_tokenizer_is_special(t, 259));
  assert_int_equal(sl_tokenizer_find(t, "<|endoftext|>", 13), 0);
  assert_int_equal(sl_tokenizer_find(t, "ab", 2), 258);
  assert_int_equal(sl_tokenizer_find(t, "abab", 4), -1);
  sl_tokenizer_close(t);
}

/* A file has a special token as it is, a learned one in the alphabet's characters: both may be
 * spelled alike. */
static void test_specials_spelled_as_tokens(void **state) {
  (void)state;
  static const char *const special[] = {"\xc4\xa0the"}; /* " the" in the alphabet */
  const struct sl_tokenizer_options options = {300, 0, special, 1, 0};
  const char *texts[] = {"to the end", "to an end"};
  struct sl_tokenizer *t, *again;
  FAILS(sl_tokenizer_train(&options, texts, (size_t[]){10}, 1, &t), SL_BAD_ARGUMENT,
        "the special token '\xc4\xa0the' is spelled");
  OK(sl_tokenizer_train(&options, texts + 1, (size_t[]){9}, 1, &t));
  OK(sl_tokenizer_save(t, in_folder("spelled.json")));
  OK(sl_tokenizer_open(in_folder("spelled.json"), &again));
  check_equal(again, t);
  check_tokens(again, "\xc4\xa0the end", true, "\xc4\xa0the| end|");
  sl_tokenizer_close(again);
  t->tokens[1].flags |= SL__TOKEN_LITERAL; /* '!' twice: a special token, and the byte */
  t->tokens[0] = t->tokens[1];
  FAILS(sl_tokenizer_save(t, in_folder("twice.json")), SL_BAD_ARGUMENT, "'!' twice");
  sl_tokenizer_close(t);
}

/* In ASCII both are the same token, as of BpeTrainer: the special one, wherever a text has it. */
static void test_specials_that_are_learned(void **state) {
  (void)state;
  static const char *const special[] = {"the"};
  const struct sl_tokenizer_options options = {300, 0, special, 1, 0};
  const char *text = "the the then";
  struct sl_tokenizer *t, *again;
  OK(sl_tokenizer_train(&options, &text, (size_t[]){12}, 1, &t));
  OK(sl_tokenizer_save(t, in_folder("learned.json")));
  OK(sl_tokenizer_open(in_folder("learned.json"), &again));
  check_equal(again, t);
  for (int turn = 0; turn < 2; turn++) {
    const struct sl_tokenizer *one = turn ? again : t;
    assert_int_equal(sl_tokenizer_find(one, "the", 3), 0);
    assert_int_equal(one->size, 260); /* he,  the,  then beside the bytes and the special one */
    check_tokens(one, "then the", true, "the|n| |the|");
    check_tokens(one, "the then", false, "the| then|");
  }
  sl_tokenizer_close(again);
  sl_tokenizer_close(t);
}

#define ADDED(id, content, flags)                                                                  \
  "{\"id\":" #id ",\"content\":\"" content "\",\"single_word\":false" flags "}"

/* The longest match counts; blanks go with a token that takes them; ids may have gaps. */
static void test_added(void **state) {
  (void)state;
  struct sl_tokenizer *t = open_changed(
      "\"added_tokens\":[",
      "\"added_tokens\":[" ADDED(500, "foo", "") "," ADDED(501, "foobar", "") "," ADDED(
          502, "<m>", ",\"lstrip\":true") "," ADDED(503, "<n>",
                                                    ",\"rstrip\":true,\"normalized\":true") ",");
  assert_int_equal(sl_tokenizer_size(t), 504);
  check_tokens(t, "foobar foo", false, "foobar| |foo|");
  check_tokens(t, "1 \t<m> 2", true, "1|<m>| |2|");
  check_tokens(t, "1 <n>  \n2", true, "1| |<n>|2|");
  size_t length;
  assert_null(sl_tokenizer_token(t, 450, &length));
  FAILS(sl_tokenizer_decode(t, (int32_t[]){5, 450}, 2, &(char *){0}, &length), SL_BAD_ARGUMENT,
        "token 1 is 450");
  sl_tokenizer_close(t);
}

static void test_ids_outside(void **state) {
  (void)state;
  struct sl_tokenizer *t = open_fixture(0);
  char *text;
  size_t length;
  FAILS(sl_tokenizer_decode(t, (int32_t[]){0, 400}, 2, &text, &length), SL_BAD_ARGUMENT,
        "0 to 399");
  FAILS(sl_tokenizer_decode(t, (int32_t[]){-1}, 1, &text, &length), SL_BAD_ARGUMENT, "is -1");
  assert_null(sl_tokenizer_token(t, -1, &length));
  assert_null(sl_tokenizer_token(t, 400, &length));
  OK(sl_tokenizer_decode(t, NULL, 0, &text, &length));
  assert_int_equal(length, 0);
  free(text);
  sl_tokenizer_close(t);
}

/* ---- files ---- */

static char *file_bytes;

static enum sl_status open_status(const char *text, size_t size) {
  struct sl_tokenizer *t;
  enum sl_status status = sl_tokenizer_open(put("tokenizer.json", text, size), &t);
  if (status == SL_OK) sl_tokenizer_close(t);
  return status;
}

/* GPT-2's fixture with the first place of one text replaced, in a block to free(). */
static char *changed(const char *from, const char *to) {
  const char *at = strstr(file_bytes, from);
  if (!at) fail_msg("the fixture has no %s", from);
  char *text = malloc(strlen(file_bytes) + strlen(to) + 1);
  memcpy(text, file_bytes, (size_t)(at - file_bytes));
  strcpy(strcpy(text + (at - file_bytes), to) + strlen(to), at + strlen(from));
  return text;
}

static struct sl_tokenizer *open_changed(const char *from, const char *to) {
  struct sl_tokenizer *t;
  char *text = changed(from, to);
  OK(sl_tokenizer_open(put("tokenizer.json", text, strlen(text)), &t));
  free(text);
  return t;
}

static void check_changed(const char *from, const char *to, enum sl_status status,
                          const char *message) {
  char *text = changed(from, to);
  FAILS(open_status(text, strlen(text)), status, message);
  free(text);
}

#define SPLIT_BEGIN                                                                                \
  "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
#define SPLIT_END                                                                                  \
  "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","                         \
  "\"add_prefix_space\":false,\"use_regex\":false}]},\"x\":{"
#define PRE "\"pre_tokenizer\":{"

static void test_unsupported(void **state) {
  (void)state;
  check_changed("\"type\":\"BPE\"", "\"type\":\"WordPiece\"", SL_UNSUPPORTED, "'WordPiece'; only");
  check_changed("\"byte_fallback\":false", "\"byte_fallback\":true", SL_UNSUPPORTED, "fallback");
  check_changed("\"dropout\":null", "\"dropout\":0.1", SL_UNSUPPORTED, "dropout");
  check_changed("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", SL_UNSUPPORTED,
                "end_of_word_suffix");
  check_changed("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", SL_UNSUPPORTED,
                "normalizer is 'NFC'; only files without one");
  check_changed("\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"",
                SL_UNSUPPORTED, "decoder is 'Fuse'");
  check_changed(PRE, "\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"x\":{", SL_UNSUPPORTED,
                "pre_tokenizer is 'Whitespace'; only ByteLevel");
  check_changed(PRE, "\"pre_tokenizer\":null,\"x\":{", SL_UNSUPPORTED, "is 'null'");
  check_changed("\"use_regex\":true", "\"use_regex\":false", SL_UNSUPPORTED, "without a pattern");
  check_changed(PRE, SPLIT_BEGIN "\"Regex\":\"\\\\w+\"" SPLIT_END, SL_UNSUPPORTED,
                "pattern is '\\w+'; only those of GPT-2 and Llama 3");
  check_changed(PRE, SPLIT_BEGIN "\"String\":\"x\"" SPLIT_END, SL_UNSUPPORTED, "no regular");
  check_changed("\"added_tokens\":[",
                "\"added_tokens\":[{\"id\":9,\"content\":\"x\","
                "\"single_word\":true},",
                SL_UNSUPPORTED, "single_word");
}

static void test_damaged(void **state) {
  (void)state;
  struct sl_tokenizer *t;
  FAILS(sl_tokenizer_open(in_folder("none"), &t), SL_IO, "No such file");
  FAILS(open_status("", 0), SL_BAD_FILE, "cut short at byte 0");
  FAILS(open_status("[]", 2), SL_BAD_FILE, "no \"model\"");
  FAILS(open_status("{\"model\":{}}", 12), SL_UNSUPPORTED, "pre_tokenizer is 'null'");
  check_changed("\"vocab\":{", "\"vocab\":[],\"x\":{", SL_BAD_FILE, "no \"vocab\"");
  check_changed("\"merges\":[", "\"merges\":{\"x\":[", SL_BAD_FILE, "cut short");
  check_changed("\"merges\":[", "\"merged\":[", SL_BAD_FILE, "no list \"merges\"");
  check_changed("\"merges\":[", "\"merges\":[\"ab\",", SL_BAD_FILE, "merge 0 is no pair");
  check_changed("\"merges\":[", "\"merges\":[7,", SL_BAD_FILE, "merge 0 is no pair");
  check_changed("\"merges\":[", "\"merges\":[[\"a\"],", SL_BAD_FILE, "merge 0 is no pair");
  check_changed("\"merges\":[", "\"merges\":[[\"a\",\"b\",\"c\"],", SL_BAD_FILE, "is no pair");
  check_changed("\"merges\":[", "\"merges\":[\"a b c\",", SL_BAD_FILE, "'b c', which is not in");
  check_changed("\"merges\":[", "\"merges\":[\" a\",", SL_BAD_FILE, "merge 0 has ''");
  check_changed("\"merges\":[", "\"merges\":[\"Q Q\",", SL_BAD_FILE, "does not have");
  check_changed("\"!\":2", "\"!\":3", SL_BAD_FILE, "id 3 is of two tokens");
  check_changed("\"!\":2", "\"!\":-2", SL_BAD_FILE, "id of '!' in \"vocab\"");
  check_changed("\"!\":2", "\"!\":2.5", SL_BAD_FILE, "id of '!' in \"vocab\"");
  check_changed("\"!\":2", "\"!\":9999999999", SL_BAD_FILE, "is no number of 0 to 4194303");
  check_changed("\"%\":6", "\"%%\":6", SL_BAD_FILE, "no token for the byte 0x25");
  check_changed("\"!\":2", "\"!\":2,\"!\":500", SL_BAD_FILE, "damaged");
  check_changed("\"!\":2", "\"!\":2,\"\":500", SL_BAD_FILE, "empty");
  check_changed("\"content\":\"<|endoftext|>\"", "\"content\":\"\"", SL_BAD_FILE,
                "entry 0 of \"added_tokens\"");
  check_changed("\"content\":\"<|endoftext|>\"", "\"content\":\"other\"", SL_BAD_FILE,
                "token 'other' has the id 0, but not in the vocabulary");
  check_changed("\"added_tokens\":[", "\"added_tokens\":[" ADDED(0, "<|endoftext|>", "") ",",
                SL_BAD_FILE, "two added tokens");
  check_changed("\"added_tokens\":[", "\"added_tokens\":[" ADDED(271, "\xe2\x80\x8d", "") ",",
                SL_BAD_FILE, "has the id 271, but not in the vocabulary"); /* which spells it */
  /* as Hugging Face's add_tokens() writes it: '\xc2\xa3' is the byte 0xA3 in the alphabet */
  check_changed("\"added_tokens\":[", "\"added_tokens\":[" ADDED(98, "\xc2\xa3", "") ",",
                SL_UNSUPPORTED, "'\xc2\xa3'; it has the id of the byte 0xA3");
}

/* Every entry has an id and a content of its own; a file with others is refused, not half read. */
static void test_damaged_added(void **state) {
  (void)state;
#define LIST "\"added_tokens\":["
  check_changed(LIST, "\"added_tokens\":{},\"x\":[", SL_BAD_FILE, "\"added_tokens\" is no list");
  check_changed(LIST, "\"added_tokens\":7,\"x\":[", SL_BAD_FILE, "\"added_tokens\" is no list");
  check_changed(LIST, LIST "7,", SL_BAD_FILE, "entry 0 of \"added_tokens\" has no \"content\"");
  check_changed(LIST, LIST "{\"id\":500},", SL_BAD_FILE, "entry 0 of \"added_tokens\" has no");
  check_changed(LIST, LIST "{\"id\":500,\"content\":7},", SL_BAD_FILE, "has no \"content\"");
  check_changed(LIST, LIST "{\"content\":\"x\"},", SL_BAD_FILE,
                "the id of 'x' in \"added_tokens\" is no number");
  check_changed(LIST, LIST ADDED(-1, "x", "") ",", SL_BAD_FILE, "the id of 'x'");
  check_changed(LIST, LIST ADDED(1.5, "x", "") ",", SL_BAD_FILE, "the id of 'x'");
  check_changed(LIST, LIST ADDED("500", "x", "") ",", SL_BAD_FILE, "the id of 'x'");
  check_changed(LIST, LIST ADDED(4194304, "x", "") ",", SL_BAD_FILE, "of 0 to 4194303");
  check_changed(LIST, LIST ADDED(500, "foo", "") "," ADDED(500, "bar", "") ",", SL_BAD_FILE,
                "the id 500 is of two added tokens, one of them 'bar'");
  check_changed(LIST, LIST ADDED(500, "foo", "") "," ADDED(501, "foo", "") ",", SL_BAD_FILE,
                "the added token 'foo' has two ids, 500 and 501");
  check_changed(LIST, LIST ADDED(500, "f\xc3\xb6", "") "," ADDED(501, "f\xc3\xb6", "") ",",
                SL_BAD_FILE, "has two ids, 500 and 501");
  check_changed(LIST, LIST ADDED(500, "foo", ",\"special\":\"no\"") ",", SL_BAD_FILE,
                "\"special\" of the added token 'foo' is neither true nor false");
#undef LIST
}

static void test_cut_anywhere(void **state) {
  (void)state;
  size_t size = strlen(file_bytes);
  for (size_t cut = 0; cut < size; cut += 97)
    FAILS(open_status(file_bytes, cut), SL_BAD_FILE, "damaged or cut short");
}

/* ---- trainings that cannot be ---- */

static enum sl_status train_status(struct sl_tokenizer_options options) {
  struct sl_tokenizer *t;
  const char *text = "some text";
  enum sl_status status = sl_tokenizer_train(&options, &text, &(size_t){9}, 1, &t);
  if (status == SL_OK) sl_tokenizer_close(t);
  return status;
}

static void test_refused(void **state) {
  (void)state;
  static const char *const twice[] = {"<a>", "<a>"}, *const empty[] = {""}, *const byte[] = {"a"};
  static const char *const character[] = {"\xc2\xa7"}; /* 0xA7 in the alphabet of files */
  static const char *const not_utf8[] = {"<a>", "<\xff>"};
  enum sl_token_pattern pattern;
  FAILS(train_status((struct sl_tokenizer_options){.size = 255}), SL_BAD_ARGUMENT, "take 256");
  FAILS(train_status((struct sl_tokenizer_options){257, 0, twice, 2, 0}), SL_BAD_ARGUMENT, "258");
  FAILS(train_status((struct sl_tokenizer_options){1 << 23, 0, NULL, 0, 0}), SL_BAD_ARGUMENT, "to");
  FAILS(train_status((struct sl_tokenizer_options){300, 0, twice, 2, 0}), SL_BAD_ARGUMENT, "twice");
  FAILS(train_status((struct sl_tokenizer_options){300, 0, empty, 1, 0}), SL_BAD_ARGUMENT, "empty");
  FAILS(train_status((struct sl_tokenizer_options){300, 0, byte, 1, 0}), SL_BAD_ARGUMENT, "a byte");
  FAILS(train_status((struct sl_tokenizer_options){300, 0, character, 1, 0}), SL_BAD_ARGUMENT,
        "the special token '\xc2\xa7' stands for a byte");
  FAILS(train_status((struct sl_tokenizer_options){300, 0, not_utf8, 2, 0}), SL_BAD_ARGUMENT,
        "special token 1, '<\xff>', is no UTF-8 (its byte 1 is 0xFF)");
  FAILS(train_status((struct sl_tokenizer_options){300, 0, NULL, 1, 0}), SL_BAD_ARGUMENT, "texts");
  FAILS(train_status((struct sl_tokenizer_options){300, (enum sl_token_pattern)2, NULL, 0, 0}),
        SL_BAD_ARGUMENT, "pattern 2");
  OK(train_status((struct sl_tokenizer_options){300, SL_PATTERN_LLAMA3, NULL, 0, 2}));
  OK(sl_token_pattern_parse("gpt2", &pattern));
  OK(sl_token_pattern_parse("llama3", &pattern));
  assert_int_equal(pattern, SL_PATTERN_LLAMA3);
  FAILS(sl_token_pattern_parse("bert", &pattern), SL_BAD_ARGUMENT, "use gpt2 or llama3");
}

/* ---- without memory ---- */

static enum sl_status use_all(void) {
  enum sl_status status;
  struct sl_tokenizer *made = NULL, *opened = NULL;
  const char *text = "the cat and the dog and the cat";
  static const char *const specials[] = {"<e>"};
  int32_t *tokens = NULL;
  int64_t count;
  char *again = NULL;
  size_t size = strlen(text);
  SL__TRY(sl_tokenizer_train(&(struct sl_tokenizer_options){265, 0, specials, 1, 0}, &text, &size,
                             1, &made));
  SL__TRY(sl_tokenizer_save(made, in_folder("allocations.json")));
  SL__TRY(sl_tokenizer_open(in_folder("allocations.json"), &opened));
  SL__TRY(sl_tokenizer_encode(opened, text, size, true, &tokens, &count));
  SL__TRY(sl_tokenizer_decode(opened, tokens, count, &again, &size));
out:
  sl_tokenizer_close(made);
  sl_tokenizer_close(opened);
  free(tokens);
  free(again);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  check_allocations(use_all);
}

static int setup(void **state) {
  size_t size;
  if (folder_setup(state) != 0) return -1;
  if (sl_text_read(fixture("%s", "tokenizer_text.txt"), &hard_text, &hard_size) != SL_OK ||
      sl_text_read(fixture("%s", "tokenizer_gpt2.json"), &file_bytes, &size) != SL_OK)
    return -1;
  char *ended = realloc(file_bytes, size + 1);
  if (!ended) return -1;
  file_bytes = ended;
  file_bytes[size] = '\0';
  return 0;
}

static int teardown(void **state) {
  free(hard_text);
  free(file_bytes);
  return folder_teardown(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2_pieces),
      cmocka_unit_test(test_llama3_pieces),
      cmocka_unit_test(test_blanks),
      cmocka_unit_test(test_bytes_that_are_no_utf8),
      cmocka_unit_test(test_hugging_face),
      cmocka_unit_test(test_all_bytes),
      cmocka_unit_test(test_long_piece),
      cmocka_unit_test(test_specials),
      cmocka_unit_test(test_specials_spelled_as_tokens),
      cmocka_unit_test(test_specials_that_are_learned),
      cmocka_unit_test(test_added),
      cmocka_unit_test(test_ids_outside),
      cmocka_unit_test(test_unsupported),
      cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_damaged_added),
      cmocka_unit_test(test_cut_anywhere),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
