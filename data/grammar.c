/* Generated sentences with agreement over any distance, from a probabilistic context-free grammar
 * with grammatical number (the task of Linzen, Dupoux, Goldberg: "Assessing the ability of LSTMs to
 * learn syntax-sensitive dependencies", TACL 4, 2016).
 *
 * The next word always shows the rule that was chosen; only after "the" it is the noun that does.
 * So a sentence has one derivation, and the entropy of sentences is that of derivations, which is a
 * simple sum. Random numbers come from Philox by (seed, set, sentence): sentence i does not depend
 * on other sentences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <starling/text.h>

#include "core/base/error.h"
#include "data/source.h"

enum symbol {
  END, /* symbols in a rule's body */
  /* symbols with rules */
  SENTENCE,
  CLAUSE,
  PHRASE,
  BARE,
  MODIFIER,
  RELATIVE,
  ACTION,
  PREDICATE,
  OBJECT,
  OTHER,
  /* symbols that become one of several words */
  DETERMINER,
  ADJECTIVE,
  NOUN,
  TRANSITIVE,
  INTRANSITIVE,
  OFTEN, /* adverbs before a verb */
  WELL,  /* adverbs after a verb; with the same words a sentence could have two derivations */
  NEAR,
  THAT,
  AND,
  SYMBOLS
};

/* A symbol of a body has the number of its rule, unless ONE or MANY says another. */
#define ONE(symbol) ((symbol) | 64)
#define MANY(symbol) ((symbol) | 128)
#define SYMBOL(item) ((item)&63)

#define RULES 5
#define BODY 5
static const struct rule {
  int weight;
  uint8_t body[BODY];
} rules[DETERMINER][RULES] = {
    [SENTENCE] = {{3, {ONE(CLAUSE)}}, {2, {MANY(CLAUSE)}}},
    [CLAUSE] = {{3, {PHRASE, PREDICATE}}, {1, {PHRASE, PREDICATE, AND, PREDICATE}}},
    [PHRASE] = {{1, {BARE, MODIFIER}}},
    [BARE] = {{5, {DETERMINER, NOUN}},
              {3, {DETERMINER, ADJECTIVE, NOUN}},
              {1, {DETERMINER, ADJECTIVE, ADJECTIVE, NOUN}}},
    /* phrases between subject and verb have numbers of their own, to mislead a model */
    [MODIFIER] = {{8, {END}}, {3, {NEAR, OTHER}}, {2, {THAT, ACTION}}, {3, {THAT, RELATIVE}}},
    [RELATIVE] = {{1, {ONE(PHRASE), ONE(TRANSITIVE)}}, {1, {MANY(PHRASE), MANY(TRANSITIVE)}}},
    [ACTION] = {{1, {INTRANSITIVE}}, {2, {TRANSITIVE, OTHER}}},
    [PREDICATE] = {{3, {INTRANSITIVE}},
                   {1, {OFTEN, INTRANSITIVE}},
                   {1, {INTRANSITIVE, WELL}},
                   {4, {TRANSITIVE, OBJECT}},
                   {1, {OFTEN, TRANSITIVE, OBJECT}}},
    [OBJECT] = {{3, {ONE(PHRASE)}}, {2, {MANY(PHRASE)}}},
    [OTHER] = {{1, {ONE(BARE)}}, {1, {MANY(BARE)}}},
};

#define WORDS 14
static const char *const words[SYMBOLS][2][WORDS] = {
    [DETERMINER] = {{"the", "one", "this", "every"}, {"the", "some", "these", "many"}},
    [ADJECTIVE] = {{"old", "young", "small", "big", "red", "quiet", "happy", "strange", "clever",
                    "brave"}},
    [NOUN] = {{"dog", "child", "farmer", "cat", "teacher", "bird", "doctor", "river", "car", "ship",
               "king", "tree", "painter", "mouse"},
              {"dogs", "children", "farmers", "cats", "teachers", "birds", "doctors", "rivers",
               "cars", "ships", "kings", "trees", "painters", "mice"}},
    [TRANSITIVE] = {{"sees", "knows", "follows", "likes", "hears", "finds", "fears", "paints",
                     "carries"},
                    {"see", "know", "follow", "like", "hear", "find", "fear", "paint", "carry"}},
    [INTRANSITIVE] = {{"sleeps", "waits", "runs", "sings", "moves", "falls", "shines"},
                      {"sleep", "wait", "run", "sing", "move", "fall", "shine"}},
    [OFTEN] = {{"often", "never", "always", "rarely"}},
    [WELL] = {{"again", "slowly", "alone", "today"}},
    [NEAR] = {{"near", "behind", "with", "beside", "under"}},
    [THAT] = {{"that"}},
    [AND] = {{"and"}},
};

/* ---- choices, for drawing and for the entropy ---- */

static int number_of(int item, int number) {
  return item == SYMBOL(item) ? number : item == MANY(SYMBOL(item));
}

/* Words without a plural are the same in both numbers. */
static const char *const *words_of(int symbol, int number) {
  return words[symbol][words[symbol][number][0] ? number : 0];
}

/* The weight of a symbol's i-th choice, 0 after the last. The weight of the i-th word falls as 1/i
 * (Zipf). */
static int weight_of(int symbol, int number, int i) {
  if (symbol < DETERMINER) return i < RULES ? rules[symbol][i].weight : 0;
  return i < WORDS && words_of(symbol, number)[i] ? 1000 / (i + 1) : 0;
}

static int total_weight(int symbol, int number) {
  int total = 0;
  for (int i = 0, weight; (weight = weight_of(symbol, number, i)) > 0; i++) total += weight;
  return total;
}

/* ---- entropy ---- */

/* Expected entropy in nats, and expected number of words, of the expansion of a symbol. */
struct measure {
  double entropy, length;
};

/* One iteration: the entropy of the choice, plus the present estimates for the symbols of the
 * bodies. */
static struct measure measure_symbol(int symbol, int number, struct measure known[SYMBOLS][2]) {
  struct measure sum = {0, symbol < DETERMINER ? 0 : 1};
  double total = total_weight(symbol, number);
  for (int i = 0, weight; (weight = weight_of(symbol, number, i)) > 0; i++) {
    double p = weight / total;
    sum.entropy -= p * log(p);
    for (int k = 0; symbol < DETERMINER && k < BODY && rules[symbol][i].body[k]; k++) {
      int item = rules[symbol][i].body[k];
      const struct measure *part = &known[SYMBOL(item)][number_of(item, number)];
      sum.entropy += p * part->entropy;
      sum.length += p * part->length;
    }
  }
  return sum;
}

/* A phrase contains 3/16 further phrases on average: each iteration reduces the error at least by
 * that factor. After 100 only rounding errors remain. */
static double entropy_per_word(void) {
  struct measure known[SYMBOLS][2] = {{{0, 0}}};
  for (int sweep = 0; sweep < 100; sweep++)
    for (int symbol = SYMBOLS - 1; symbol > END; symbol--)
      for (int number = 0; number < 2; number++)
        known[symbol][number] = measure_symbol(symbol, number, known);
  const struct measure *sentence = &known[SENTENCE][0];
  return sentence->entropy /
         (sentence->length + 1); /* the line end is certain, but counts as a word */
}

/* ---- sentences ---- */

/* Choice i with probability weight / total, exact to 2^-26. */
static int choose(struct sl__source *random, int symbol, int number) {
  uint32_t bits = sl__philox(random->seed, random->stream, random->next >> 2).v[random->next & 3];
  int left = (int)((uint64_t)bits * (uint64_t)total_weight(symbol, number) >> 32), i = 0;
  random->next++;
  for (; left >= weight_of(symbol, number, i); i++) left -= weight_of(symbol, number, i);
  return i;
}

struct output {
  char *text;
  size_t size, capacity;
};

static enum sl_status add_word(struct output *to, const char *word, char after) {
  size_t length = strlen(word);
  if (to->capacity - to->size < length + 1) {
    size_t capacity = to->capacity * 2 + 4096; /* longer than any word */
    char *grown = sl__realloc(to->text, capacity, 1, "generated sentences");
    if (!grown) return SL_NO_MEMORY;
    to->text = grown;
    to->capacity = capacity;
  }
  memcpy(to->text + to->size, word, length);
  to->text[to->size + length] = after;
  to->size += length + 1;
  return SL_OK;
}

/* The recursion is as deep as the sentence is nested: 4 further levels have probability (3/16)^4.
 */
static enum sl_status expand(struct sl__source *random, int symbol, int number, struct output *to) {
  int way = choose(random, symbol, number);
  if (symbol >= DETERMINER) return add_word(to, words_of(symbol, number)[way], ' ');
  const uint8_t *body = rules[symbol][way].body;
  for (int k = 0; k < BODY && body[k]; k++) {
    int part_number = number_of(body[k], number);
    enum sl_status status = expand(random, SYMBOL(body[k]), part_number, to);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

enum sl_status sl_grammar_new(uint64_t seed, bool train, int64_t sentences, char **text,
                              size_t *size, double *entropy) {
  SL__NEEDS(text, size);
  enum sl_status status = SL_OK;
  struct output to = {0};
  if (sentences < 1 || sentences >= (int64_t)1 << 48)
    return sl__fail(SL_BAD_ARGUMENT, "cannot make %lld sentences; ask for at least one",
                    (long long)sentences);
  for (int64_t i = 0; i < sentences; i++) {
    struct sl__source random = sl__source(SL__SOURCE_GRAMMAR, seed, train, i);
    SL__TRY(expand(&random, SENTENCE, 0, &to));
    to.text[to.size - 1] = '\n'; /* replaces the last word's blank */
  }
  *text = to.text;
  *size = to.size;
  to.text = NULL;
  if (entropy) *entropy = entropy_per_word();
out:
  free(to.text);
  return status;
}
