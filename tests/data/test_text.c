/* Text files, vocabularies and generated sentences. Vocabularies are compared with ids worked out
 * by hand, and their files are damaged in every way that we could think of. Sentences are read by a
 * parser that shares nothing with the generator: it checks the agreement of every verb and counts
 * the choices that were made, whose frequencies give the entropy a second time. */
#include <math.h>

#include <starling/text.h>

#include "tests/common/files.h"

/* ---- text files ---- */

static enum sl_status read_status(const char *path) {
  char *text = NULL;
  size_t size;
  enum sl_status status = sl_text_read(path, &text, &size);
  if (status == SL_OK) free(text);
  return status;
}

static void check_text(const char *path, const char *expected) {
  char *text;
  size_t size;
  OK(sl_text_read(path, &text, &size));
  assert_int_equal(size, strlen(expected));
  assert_memory_equal(text, expected, size);
  free(text);
}

static void test_files(void **state) {
  (void)state;
  check_text(put("plain", "to be\nor \xff\n", 11), "to be\nor \xff\n");
  check_text(put_gz("packed", "to be\n", 6), "to be\n");
  check_text(put("letter", "x", 1), "x");
  FAILS(read_status(in_folder("none")), SL_IO, "No such file");
  FAILS(read_status(test_folder), SL_IO, "name a file");
  FAILS(read_status(put("empty", "", 0)), SL_BAD_FILE, "is empty");
  FAILS(read_status(put_gz("empty.gz", "", 0)), SL_BAD_FILE, "is empty");
  FAILS(read_status(put("binary", "abc\0def", 7)), SL_BAD_FILE, "zero at byte 3");
  const int32_t header[3] = {20240520, 1, 3};
  FAILS(read_status(put("tokens", (const char *)header, sizeof header)), SL_BAD_FILE,
        "is a token file, not a text");
  FAILS(read_status(put("utf16", "\xff\xfe\x61", 4)), SL_BAD_FILE, "UTF-16");
}

/* ---- vocabularies ---- */

static struct sl_vocabulary *vocabulary(enum sl_text_level level, const char *text,
                                        int64_t least_count, int64_t most_words) {
  struct sl_vocabulary *v;
  /* a block of just that size, so that the sanitizer sees a read behind it */
  size_t size = strlen(text);
  char *block = malloc(size);
  memcpy(block, text, size);
  OK(sl_vocabulary_new(level, block, size, least_count, most_words, &v));
  free(block);
  return v;
}

/* The vocabulary's words, a blank behind each; v is freed. */
static void check_words(struct sl_vocabulary *v, const char *expected) {
  char words[4096] = "";
  for (int64_t id = 0; id < sl_vocabulary_size(v); id++) {
    const char *word = sl_vocabulary_word(v, id);
    assert_int_equal(sl_vocabulary_find(v, word, strlen(word)), id);
    strcat(strcat(words, word), " ");
  }
  assert_string_equal(words, expected);
  assert_null(sl_vocabulary_word(v, -1));
  assert_null(sl_vocabulary_word(v, sl_vocabulary_size(v)));
  sl_vocabulary_free(v);
}

static void test_words(void **state) {
  (void)state;
  const char *text = "b a  c\tb\nb a \r\n\n bb d";
  check_words(vocabulary(SL_TEXT_WORD, text, 0, 0), "<unk> <eos> b a bb c d ");
  check_words(vocabulary(SL_TEXT_WORD, text, 1, 7), "<unk> <eos> b a bb c d ");
  check_words(vocabulary(SL_TEXT_WORD, text, 2, 0), "<unk> <eos> b a ");
  check_words(vocabulary(SL_TEXT_WORD, text, 0, 5), "<unk> <eos> b a bb ");
  check_words(vocabulary(SL_TEXT_WORD, text, 3, 4), "<unk> <eos> b ");
  check_words(vocabulary(SL_TEXT_WORD, text, 2, 3), "<unk> <eos> b ");
  check_words(vocabulary(SL_TEXT_WORD, text, 1000, 0), "<unk> <eos> ");
  check_words(vocabulary(SL_TEXT_WORD, text, 0, 2), "<unk> <eos> ");
  check_words(vocabulary(SL_TEXT_WORD, "word", 0, 0), "<unk> <eos> word ");
  check_words(vocabulary(SL_TEXT_WORD, " \n\t ", 0, 0), "<unk> <eos> ");
  /* these two written out are no further words, however frequent */
  check_words(vocabulary(SL_TEXT_WORD, "x <unk> <unk> <eos> <unk>", 0, 0), "<unk> <eos> x ");
  /* bytes above 127 are larger, as strcmp has them */
  check_words(vocabulary(SL_TEXT_WORD, "\xc3\xa9t\xc3\xa9 zoo \xff", 0, 0),
              "<unk> <eos> zoo \xc3\xa9t\xc3\xa9 \xff ");
  sl_vocabulary_free(NULL);
}

static void test_chars(void **state) {
  (void)state;
  const char *text = "cab\na\xff";
  check_words(vocabulary(SL_TEXT_CHAR, text, 0, 0), "<unk> \n a b c \xff ");
  check_words(vocabulary(SL_TEXT_CHAR, text, 2, 0), "<unk> a ");
  check_words(vocabulary(SL_TEXT_CHAR, text, 0, 4), "<unk> \n a b ");
  check_words(vocabulary(SL_TEXT_CHAR, "x", 0, 0), "<unk> x ");
  struct sl_vocabulary *v = vocabulary(SL_TEXT_CHAR, text, 0, 0);
  assert_int_equal(sl_vocabulary_level(v), SL_TEXT_CHAR);
  assert_int_equal(sl_vocabulary_find(v, "ab", 2), 0);
  assert_int_equal(sl_vocabulary_find(v, "<eos>", 5), 0);
  assert_int_equal(sl_vocabulary_find(v, "", 0), 0);
  sl_vocabulary_free(v);
}

/* More words than the table first has room for: word i occurs i times. */
static void test_many_words(void **state) {
  (void)state;
  enum { COUNT = 3000 };
  size_t size = 0;
  char *text = malloc((size_t)COUNT * COUNT / 2 * 7), word[16];
  for (int i = 1; i <= COUNT; i++)
    for (int k = 0; k < i; k++) size += (size_t)sprintf(text + size, "w%d ", i);
  struct sl_vocabulary *v;
  OK(sl_vocabulary_new(SL_TEXT_WORD, text, size, 0, 0, &v));
  free(text);
  assert_int_equal(sl_vocabulary_size(v), COUNT + 2);
  for (int i = 1; i <= COUNT; i++) {
    sprintf(word, "w%d", i);
    assert_int_equal(sl_vocabulary_find(v, word, strlen(word)), 2 + COUNT - i);
    assert_string_equal(sl_vocabulary_word(v, 2 + COUNT - i), word);
  }
  sl_vocabulary_free(v);
}

static void check_tokens(const struct sl_vocabulary *v, const char *text, size_t size,
                         const int32_t *expected, int64_t expected_count) {
  char *block = malloc(size ? size : 1);
  int32_t *tokens;
  int64_t count;
  memcpy(block, text, size);
  OK(sl_vocabulary_encode(v, block, size, &tokens, &count));
  free(block);
  assert_int_equal(count, expected_count);
  assert_memory_equal(tokens, expected, (size_t)count * sizeof *tokens);
  free(tokens);
}

#define TOKENS(v, text, ...)                                                                       \
  check_tokens(v, text, sizeof text - 1, (const int32_t[]){__VA_ARGS__},                           \
               sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_encode(void **state) {
  (void)state;
  struct sl_vocabulary *v = vocabulary(SL_TEXT_WORD, "the dog sees the cat\nthe dog runs", 2, 0);
  TOKENS(v, "the dog sees\n", 2, 3, 0, 1);
  TOKENS(v, "\n\n  dog\r\n\tthe ", 1, 1, 3, 1, 2); /* Windows' line ends are one token */
  TOKENS(v, "dog", 3);
  TOKENS(v, "do dogs <unk> <eos> dog\0the", 0, 0, 0, 1, 0);
  check_tokens(v, "", 0, NULL, 0);
  check_tokens(v, "  \t ", 4, NULL, 0);
  sl_vocabulary_free(v);
  v = vocabulary(SL_TEXT_CHAR, "ab\nc", 0, 0);
  TOKENS(v, "cab d\n\0", 4, 2, 3, 0, 0, 1, 0);
  check_tokens(v, "", 0, NULL, 0);
  sl_vocabulary_free(v);
}

static enum sl_status new_status(enum sl_text_level level, const char *text, size_t size,
                                 int64_t least_count, int64_t most_words) {
  struct sl_vocabulary *v;
  enum sl_status status = sl_vocabulary_new(level, text, size, least_count, most_words, &v);
  if (status == SL_OK) sl_vocabulary_free(v);
  return status;
}

static void test_bad_arguments(void **state) {
  (void)state;
  enum sl_text_level level;
  OK(sl_text_level_parse("word", &level));
  assert_int_equal(level, SL_TEXT_WORD);
  OK(sl_text_level_parse("char", &level));
  assert_int_equal(level, SL_TEXT_CHAR);
  FAILS(sl_text_level_parse("words", &level), SL_BAD_ARGUMENT, "'words' is unknown");
  FAILS(sl_text_level_parse("", &level), SL_BAD_ARGUMENT, "use word or char");
  FAILS(new_status(SL_TEXT_WORD, "", 0, 0, 0), SL_BAD_ARGUMENT, "is empty");
  FAILS(new_status(SL_TEXT_WORD, "", 0, 0, 0), SL_BAD_ARGUMENT, "is empty");
  FAILS(new_status(SL_TEXT_CHAR, "a\0b", 3, 0, 0), SL_BAD_ARGUMENT, "zero bytes");
  FAILS(new_status(SL_TEXT_WORD, "a", 1, -1, 0), SL_BAD_ARGUMENT, "-1 times");
  FAILS(new_status(SL_TEXT_WORD, "a", 1, 0, -1), SL_BAD_ARGUMENT, "at most -1 words");
  FAILS(new_status(SL_TEXT_WORD, "a", 1, 0, 1), SL_BAD_ARGUMENT, "at least 2");
  FAILS(new_status((enum sl_text_level)2, "a", 1, 0, 0), SL_BAD_ARGUMENT, "level 2");
}

/* ---- their files ---- */

static void check_round_trip(struct sl_vocabulary *v) {
  const char *path = in_folder("vocabulary.json");
  struct sl_vocabulary *loaded;
  OK(sl_vocabulary_save(v, path));
  OK(sl_vocabulary_load(path, &loaded));
  assert_int_equal(sl_vocabulary_level(loaded), sl_vocabulary_level(v));
  assert_int_equal(sl_vocabulary_size(loaded), sl_vocabulary_size(v));
  for (int64_t id = 0; id < sl_vocabulary_size(v); id++) {
    const char *word = sl_vocabulary_word(v, id);
    assert_string_equal(sl_vocabulary_word(loaded, id), word);
    assert_int_equal(sl_vocabulary_find(loaded, word, strlen(word)), id);
  }
  sl_vocabulary_free(loaded);
  sl_vocabulary_free(v);
}

static void test_round_trips(void **state) {
  (void)state;
  static char text[120000];
  size_t size = 0;
  for (int c = 255; c > 0; c--) text[size++] = (char)c;
  text[size] = '\0';
  check_round_trip(vocabulary(SL_TEXT_CHAR, text, 0, 0));
  check_round_trip(vocabulary(SL_TEXT_WORD, text, 0, 0));
  /* every pair of bytes is a word (or two): all of UTF-8's two-byte words, and all that are none */
  for (int a = 1; a < 256; a++)
    for (int b = 1; b < 256; b += (a < 128 ? 16 : 1))
      size += (size_t)snprintf(text + size, sizeof text - size, "%c%c ", a, b);
  check_round_trip(vocabulary(SL_TEXT_WORD, text, 0, 0));
  check_round_trip(
      vocabulary(SL_TEXT_WORD, "\"\\ \x01 \xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x9f\x98\x80", 0, 0));
  check_round_trip(vocabulary(SL_TEXT_WORD, " ", 0, 0));
  check_round_trip(vocabulary(SL_TEXT_WORD, "one", 0, 0));
}

static void test_file_text(void **state) {
  (void)state;
  const char *path = in_folder("vocabulary.json");
  struct sl_vocabulary *v = vocabulary(SL_TEXT_WORD, "a \xc3\xa9 \xe9t", 0, 0);
  OK(sl_vocabulary_save(v, path));
  check_text(path,
             "{\"level\":\"word\",\"words\":[\"<unk>\",\"<eos>\",\"a\",\"\xc3\xa9\",[233,116]]}");
  FAILS(sl_vocabulary_save(v, in_folder("none/vocabulary.json")), SL_IO, "does not exist");
  sl_vocabulary_free(v);
  v = vocabulary(SL_TEXT_CHAR, "a\n\xff", 0, 0);
  OK(sl_vocabulary_save(v, path));
  check_text(path, "{\"level\":\"char\",\"words\":[\"<unk>\",10,97,255]}");
  sl_vocabulary_free(v);
  FAILS(sl_vocabulary_load(in_folder("none"), &v), SL_IO, "No such file");
}

static enum sl_status load_status(const char *text, size_t size) {
  struct sl_vocabulary *v;
  enum sl_status status = sl_vocabulary_load(put("damaged.json", text, size), &v);
  if (status == SL_OK) sl_vocabulary_free(v);
  return status;
}

#define WORDS(list) "{\"level\":\"word\",\"words\":[" list "]}"
#define CHARS(list) "{\"level\":\"char\",\"words\":[" list "]}"
#define SPECIALS "\"<unk>\",\"<eos>\""

static void test_damaged_files(void **state) {
  (void)state;
  static const struct {
    const char *text, *message; /* NULL: a good file */
  } cases[] = {
      {WORDS(SPECIALS), NULL},
      {WORDS(SPECIALS ",\"a\",[255,1]") "\n", NULL},
      {CHARS("\"<unk>\",1,255"), NULL},
      {CHARS("\"<unk>\""), NULL},
      {"", "cut short"},
      {"the dog\n", "is it a vocabulary"},
      {"[]", "no \"level\""},
      {"{}", "no \"level\""},
      {"{\"level\":\"line\",\"words\":[" SPECIALS "]}", "no \"level\""},
      {"{\"level\":1,\"words\":[" SPECIALS "]}", "no \"level\""},
      {"{\"level\":\"word\",\"level\":\"char\",\"words\":[" SPECIALS "]}", "damaged"},
      {"{\"level\":\"word\"}", "no list"},
      {"{\"level\":\"word\",\"words\":{}}", "no list"},
      {WORDS(""), "too few"},
      {CHARS(""), "too few"},
      {WORDS("\"<unk>\""), "too few"},
      {WORDS("\"a\",\"b\""), "entry 0 of \"words\" is not <unk>"},
      {WORDS("\"<eos>\",\"<unk>\""), "entry 0 of \"words\" is not <unk>"},
      {WORDS("\"<unk>\",\"a\",\"<eos>\""), "entry 1 of \"words\" is not <eos>"},
      {WORDS("\"<unk>\",\"<unk>\""), "entry 1 of \"words\" is not <eos>"},
      {WORDS(SPECIALS ",\"a\",\"a\""), "entry 3 of \"words\" comes twice"},
      {WORDS(SPECIALS ",\"a\",[97]"), "entry 3 of \"words\" comes twice"},
      {WORDS(SPECIALS ",\"a\",\"<unk>\""), "entry 3 of \"words\" comes twice"},
      {WORDS(SPECIALS ",\"\""), "is no word"},
      {WORDS(SPECIALS ",[]"), "is no word"},
      {WORDS(SPECIALS ",7"), "is no word"},
      {WORDS(SPECIALS ",null"), "is no word"},
      {WORDS(SPECIALS ",{\"a\":1}"), "is no word"},
      {WORDS(SPECIALS ",[[97]]"), "is no byte"},
      {WORDS(SPECIALS ",[97,0]"), "is no byte"},
      {WORDS(SPECIALS ",[256]"), "is no byte"},
      {WORDS(SPECIALS ",[-1]"), "is no byte"},
      {WORDS(SPECIALS ",[97.0]"), "is no byte"},
      {WORDS(SPECIALS ",\"a b\""), "has a blank"},
      {WORDS(SPECIALS ",[97,10]"), "has a blank"},
      {WORDS(SPECIALS ",\"a\\u0000\""), "damaged"},
      {WORDS(SPECIALS ",\"\xff\""), "damaged"},
      {WORDS(SPECIALS) "x", "damaged"},
      {CHARS("97,98"), "is no word"},
      {CHARS("\"a\""), "entry 0 of \"words\" is not <unk>"},
      {CHARS("\"<unk>\",97,98,97"), "entry 3 of \"words\" comes twice"},
      {CHARS("\"<unk>\",\"a\""), "is no byte"},
      {CHARS("\"<unk>\",0"), "is no byte"},
      {CHARS("\"<unk>\",256"), "is no byte"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    enum sl_status status = load_status(cases[i].text, strlen(cases[i].text));
    if (cases[i].message)
      FAILS(status, SL_BAD_FILE, cases[i].message);
    else
      OK(status);
  }
}

static void test_cut_anywhere(void **state) {
  (void)state;
  static const char *const texts[] = {WORDS(SPECIALS ",\"the\",[255,200],\"\xc3\xa9\""),
                                      CHARS("\"<unk>\",10,97,255")};
  for (int i = 0; i < 2; i++) {
    size_t size = strlen(texts[i]);
    OK(load_status(texts[i], size));
    for (size_t cut = 0; cut < size; cut++)
      FAILS(load_status(texts[i], cut), SL_BAD_FILE, "damaged.json: ");
  }
}

/* Every byte in turn becomes every other value: refused or read, but never a crash. */
static void test_any_byte_changed(void **state) {
  (void)state;
  char text[] = WORDS(SPECIALS ",\"the\",[255,20]");
  for (size_t i = 0; i < sizeof text - 1; i++) {
    char kept = text[i];
    for (int value = 0; value < 256; value += 5) {
      text[i] = (char)value;
      enum sl_status status = load_status(text, sizeof text - 1);
      assert_true(status == SL_OK || status == SL_BAD_FILE);
    }
    text[i] = kept;
  }
}

/* ---- generated sentences, read by a parser of their own ---- */

enum kind { DET, ADJ, NOUN, VERB_WITH, VERB_ALONE, BEFORE, BEHIND, PREP, THAT, AND, KINDS };
enum { ONE = 1, MANY = 2, BOTH = 3 };

static const struct lexeme {
  const char *text;
  enum kind kind;
  int number;
} lexicon[] = {
    {"the", DET, BOTH},          {"one", DET, ONE},           {"this", DET, ONE},
    {"every", DET, ONE},         {"some", DET, MANY},         {"these", DET, MANY},
    {"many", DET, MANY},         {"old", ADJ, BOTH},          {"young", ADJ, BOTH},
    {"small", ADJ, BOTH},        {"big", ADJ, BOTH},          {"red", ADJ, BOTH},
    {"quiet", ADJ, BOTH},        {"happy", ADJ, BOTH},        {"strange", ADJ, BOTH},
    {"clever", ADJ, BOTH},       {"brave", ADJ, BOTH},        {"dog", NOUN, ONE},
    {"child", NOUN, ONE},        {"farmer", NOUN, ONE},       {"cat", NOUN, ONE},
    {"teacher", NOUN, ONE},      {"bird", NOUN, ONE},         {"doctor", NOUN, ONE},
    {"river", NOUN, ONE},        {"car", NOUN, ONE},          {"ship", NOUN, ONE},
    {"king", NOUN, ONE},         {"tree", NOUN, ONE},         {"painter", NOUN, ONE},
    {"mouse", NOUN, ONE},        {"dogs", NOUN, MANY},        {"children", NOUN, MANY},
    {"farmers", NOUN, MANY},     {"cats", NOUN, MANY},        {"teachers", NOUN, MANY},
    {"birds", NOUN, MANY},       {"doctors", NOUN, MANY},     {"rivers", NOUN, MANY},
    {"cars", NOUN, MANY},        {"ships", NOUN, MANY},       {"kings", NOUN, MANY},
    {"trees", NOUN, MANY},       {"painters", NOUN, MANY},    {"mice", NOUN, MANY},
    {"sees", VERB_WITH, ONE},    {"knows", VERB_WITH, ONE},   {"follows", VERB_WITH, ONE},
    {"likes", VERB_WITH, ONE},   {"hears", VERB_WITH, ONE},   {"finds", VERB_WITH, ONE},
    {"fears", VERB_WITH, ONE},   {"paints", VERB_WITH, ONE},  {"carries", VERB_WITH, ONE},
    {"see", VERB_WITH, MANY},    {"know", VERB_WITH, MANY},   {"follow", VERB_WITH, MANY},
    {"like", VERB_WITH, MANY},   {"hear", VERB_WITH, MANY},   {"find", VERB_WITH, MANY},
    {"fear", VERB_WITH, MANY},   {"paint", VERB_WITH, MANY},  {"carry", VERB_WITH, MANY},
    {"sleeps", VERB_ALONE, ONE}, {"waits", VERB_ALONE, ONE},  {"runs", VERB_ALONE, ONE},
    {"sings", VERB_ALONE, ONE},  {"moves", VERB_ALONE, ONE},  {"falls", VERB_ALONE, ONE},
    {"shines", VERB_ALONE, ONE}, {"sleep", VERB_ALONE, MANY}, {"wait", VERB_ALONE, MANY},
    {"run", VERB_ALONE, MANY},   {"sing", VERB_ALONE, MANY},  {"move", VERB_ALONE, MANY},
    {"fall", VERB_ALONE, MANY},  {"shine", VERB_ALONE, MANY}, {"often", BEFORE, BOTH},
    {"never", BEFORE, BOTH},     {"always", BEFORE, BOTH},    {"rarely", BEFORE, BOTH},
    {"again", BEHIND, BOTH},     {"slowly", BEHIND, BOTH},    {"alone", BEHIND, BOTH},
    {"today", BEHIND, BOTH},     {"near", PREP, BOTH},        {"behind", PREP, BOTH},
    {"with", PREP, BOTH},        {"beside", PREP, BOTH},      {"under", PREP, BOTH},
    {"that", THAT, BOTH},        {"and", AND, BOTH},
};
#define LEXEMES (sizeof lexicon / sizeof *lexicon)

/* Where a choice is made: which word of a kind and number, and the places in a sentence. */
enum place {
  WORD_CHOICE, /* of KINDS * 4 */
  SENTENCE_NUMBER = KINDS * 4,
  IS_DOUBLE,
  ADJECTIVES,
  MODIFIER,
  RELATIVE_NUMBER,
  ACTION,
  PREDICATE,
  OBJECT_NUMBER,
  OTHER_NUMBER,
  PLACES
};

static long chosen[PLACES][LEXEMES];
static long word_count, longest_distance, misled; /* sentences with a noun of another number between
                                                     subject and verb */

/* The sentence's words, and how far it is read. */
static const struct lexeme *sentence[1000];
static int length, position;

static const struct lexeme *find_lexeme(const char *text, size_t size) {
  for (size_t i = 0; i < LEXEMES; i++)
    if (strlen(lexicon[i].text) == size && !memcmp(lexicon[i].text, text, size)) return &lexicon[i];
  fail_msg("'%.*s' is no word of the grammar", (int)size, text);
  return NULL;
}

static bool next_is(enum kind kind) {
  return position < length && sentence[position]->kind == kind;
}

/* A word of this kind; where it has a number, of this number. */
static void take_word(enum kind kind, int number) {
  if (!next_is(kind) || !(sentence[position]->number & number))
    fail_msg("word %d, %s, is not of kind %d and number %d", position,
             position < length ? sentence[position]->text : "the end", kind, number);
  chosen[WORD_CHOICE + (int)kind * 4 +
         (sentence[position]->number == BOTH && kind != DET ? 0 : number)]
        [sentence[position] - lexicon]++;
  position++;
}

static void decide(enum place place, int way) { chosen[place][way]++; }

/* Determiner, adjectives, noun; the noun's number, which the determiner must have too. */
static int read_bare(void) {
  int start = position, adjectives = 0;
  while (start + 1 + adjectives < length && sentence[start + 1 + adjectives]->kind == ADJ)
    adjectives++;
  assert_true(start + 1 + adjectives < length && adjectives <= 2);
  int number = sentence[start + 1 + adjectives]->number;
  take_word(DET, number);
  for (int i = 0; i < adjectives; i++) take_word(ADJ, BOTH);
  take_word(NOUN, number);
  decide(ADJECTIVES, adjectives);
  return number;
}

static int read_phrase(void);

static void read_modifier(int number) {
  int way = next_is(PREP) ? 1 : next_is(THAT) ? 2 : 0;
  if (way == 1) {
    take_word(PREP, BOTH);
    decide(OTHER_NUMBER, read_bare());
  } else if (way == 2) {
    take_word(THAT, BOTH);
    if (next_is(DET)) {
      int inner = read_phrase();
      decide(RELATIVE_NUMBER, inner);
      take_word(VERB_WITH, inner);
      way = 3;
    } else if (next_is(VERB_ALONE)) {
      take_word(VERB_ALONE, number);
      decide(ACTION, 0);
    } else {
      take_word(VERB_WITH, number);
      decide(OTHER_NUMBER, read_bare());
      decide(ACTION, 1);
    }
  }
  decide(MODIFIER, way);
}

static int read_phrase(void) {
  int number = read_bare();
  read_modifier(number);
  return number;
}

static void read_predicate(int number) {
  int way = next_is(BEFORE);
  if (way) take_word(BEFORE, BOTH);
  if (next_is(VERB_ALONE)) {
    take_word(VERB_ALONE, number);
    if (!way && next_is(BEHIND)) {
      take_word(BEHIND, BOTH);
      way = 2;
    }
  } else {
    take_word(VERB_WITH, number);
    decide(OBJECT_NUMBER, read_phrase());
    way += 3;
  }
  decide(PREDICATE, way);
}

static void read_sentence(void) {
  bool other_number = false;
  position = 0;
  int number = read_phrase(), subject = 0;
  while (sentence[subject]->kind != NOUN) subject++;
  for (int i = subject + 1; i < position; i++)
    other_number |= sentence[i]->kind == NOUN && sentence[i]->number != number;
  misled += other_number;
  if (position - subject > longest_distance) longest_distance = position - subject;
  read_predicate(number);
  bool is_double = next_is(AND);
  if (is_double) {
    take_word(AND, BOTH);
    read_predicate(number);
  }
  decide(SENTENCE_NUMBER, number);
  decide(IS_DOUBLE, is_double);
  assert_int_equal(position, length);
  word_count += length + 1;
}

/* The lines of a text, each word followed by one blank or the line end. */
static long read_sentences(const char *text, size_t size) {
  long lines = 0;
  length = 0;
  for (size_t begin = 0, i = 0; i < size; i++) {
    if (text[i] != ' ' && text[i] != '\n') continue;
    assert_true(length < 1000);
    sentence[length++] = find_lexeme(text + begin, i - begin);
    begin = i + 1;
    if (text[i] == ' ') continue;
    read_sentence();
    length = 0;
    lines++;
  }
  assert_int_equal(length, 0);
  return lines;
}

/* Of all choices together, by how often each way was taken. */
static double observed_entropy(void) {
  double sum = 0;
  for (int place = 0; place < PLACES; place++) {
    double total = 0;
    for (size_t way = 0; way < LEXEMES; way++) total += (double)chosen[place][way];
    for (size_t way = 0; way < LEXEMES; way++) {
      double n = (double)chosen[place][way];
      if (n > 0) sum -= n * log(n / total);
    }
  }
  return sum;
}

static void test_agreement_and_entropy(void **state) {
  (void)state;
  const long count = 40000;
  char *text;
  size_t size;
  double entropy, observed;
  OK(sl_grammar_new(3, true, count, &text, &size, &entropy));
  assert_int_equal(read_sentences(text, size), count);
  observed = observed_entropy() / (double)word_count;
  print_message(
      "%ld sentences, %.3f words each, entropy %.5f nats a word (observed %.5f), "
      "perplexity %.3f; %.1f %% mislead, the farthest verb is %ld words away\n",
      count, (double)word_count / (double)count, entropy, observed, exp(entropy),
      100.0 * (double)misled / (double)count, longest_distance);
  assert_true(fabs(observed - entropy) < 0.005 * entropy);
  assert_true(misled > count / 10);
  assert_true(longest_distance >= 10);
  struct sl_vocabulary *v;
  OK(sl_vocabulary_new(SL_TEXT_WORD, text, size, 0, 0, &v));
  assert_int_equal(sl_vocabulary_size(v), LEXEMES + 2);
  sl_vocabulary_free(v);
  free(text);
}

/* Equal lines of two texts of as many lines. */
static int count_equal_lines(const char *a, const char *b, int lines) {
  int equal = 0;
  for (int i = 0; i < lines; i++) {
    size_t one = strcspn(a, "\n"), other = strcspn(b, "\n");
    equal += one == other && memcmp(a, b, one) == 0;
    a += one + 1;
    b += other + 1;
  }
  return equal;
}

static void test_sentences_are_reproducible(void **state) {
  (void)state;
  enum { COUNT = 500 };
  char *text[5];
  size_t size[5];
  OK(sl_grammar_new(7, true, COUNT, &text[0], &size[0], NULL));
  OK(sl_grammar_new(7, true, COUNT, &text[1], &size[1], NULL));
  OK(sl_grammar_new(7, true, COUNT / 2, &text[2], &size[2], NULL));
  OK(sl_grammar_new(7, false, COUNT, &text[3], &size[3], NULL));
  OK(sl_grammar_new(8, true, COUNT, &text[4], &size[4], NULL));
  assert_int_equal(size[0], size[1]);
  assert_memory_equal(text[0], text[1], size[0]);
  assert_true(size[2] < size[0]); /* the same beginning */
  assert_memory_equal(text[0], text[2], size[2]);
  /* a short sentence may come again, but rarely in the same place */
  assert_true(count_equal_lines(text[0], text[3], COUNT) < COUNT / 100);
  assert_true(count_equal_lines(text[0], text[4], COUNT) < COUNT / 100);
  for (int i = 0; i < 5; i++) free(text[i]);
  FAILS(sl_grammar_new(7, true, 0, text, size, NULL), SL_BAD_ARGUMENT, "0 sentences");
  FAILS(sl_grammar_new(7, true, -1, text, size, NULL), SL_BAD_ARGUMENT, "at least one");
}

/* ---- without memory ---- */

static enum sl_status use_all(void) {
  enum sl_status status;
  struct sl_vocabulary *made = NULL, *loaded = NULL;
  char *text = NULL, *read = NULL;
  int32_t *tokens = NULL;
  int64_t count;
  size_t size, read_size;
  SL__TRY(sl_grammar_new(1, true, 200, &text, &size, NULL));
  SL__TRY(sl_text_read(in_folder("plain"), &read, &read_size));
  SL__TRY(sl_vocabulary_new(SL_TEXT_WORD, text, size, 0, 0, &made));
  SL__TRY(sl_vocabulary_encode(made, text, size, &tokens, &count));
  SL__TRY(sl_vocabulary_save(made, in_folder("allocations.json")));
  SL__TRY(sl_vocabulary_load(in_folder("allocations.json"), &loaded));
out:
  sl_vocabulary_free(made);
  sl_vocabulary_free(loaded);
  free(text);
  free(read);
  free(tokens);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  put("plain", "to be", 5);
  check_allocations(use_all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_words),
      cmocka_unit_test(test_chars),
      cmocka_unit_test(test_many_words),
      cmocka_unit_test(test_encode),
      cmocka_unit_test(test_bad_arguments),
      cmocka_unit_test(test_round_trips),
      cmocka_unit_test(test_file_text),
      cmocka_unit_test(test_damaged_files),
      cmocka_unit_test(test_cut_anywhere),
      cmocka_unit_test(test_any_byte_changed),
      cmocka_unit_test(test_agreement_and_entropy),
      cmocka_unit_test(test_sentences_are_reproducible),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
