/* The tokens of a language model: characters or words of a vocabulary, those of a tokenizer.json,
 * or the numbers of a token file; and text that a saved model goes on with. Programs that train
 * language models embed a struct language in their options. */
#ifndef SL_TOOLS_TRAIN_LANGUAGE_H
#define SL_TOOLS_TRAIN_LANGUAGE_H

#include "tools/train/run.h"
#include "tools/train/text_parts.h"

enum { LANGUAGE_MOST_PROMPT = 10000 };
#define LANGUAGE_DEFAULTS(name)                                                                    \
  { .program = name, .words = 10000, .temperature = 1 }

struct language {
  enum sl_text_level level;
  const char *program;
  int64_t words;  /* of the vocabulary, at most */
  int64_t sample; /* number of tokens to generate instead of training; 0: train */
  const char *prompt;
  double temperature;
  const char *tokenizer_file;       /* tokenizer.json; NULL: that of the loaded weights, if any */
  struct sl_tokenizer *tokenizer;   /* NULL: vocabulary */
  struct sl_vocabulary *vocabulary; /* NULL, too: the tokens are numbers without a text */
  /* NULL: sl_model_load; else reads the weights of --load, as of struct program */
  enum sl_status (*load)(struct sl_model *model, const char *path, const void *input);
  /* NULL: language_size; else the model's classes. Exits where the model lacks a token */
  int64_t (*classes)(const void *input);
  double entropy; /* of the generator, nats a word; 0: the text is a file */
};

/* The rows of these options; member: of type struct language. */
#define LANGUAGE_LEVEL_ROWS(type, member)                                                          \
  {"level",                                                                                        \
   "NAME",                                                                                         \
   "Kind of the tokens: word, char",                                                               \
   OPTION_FIELD(type, member.level),                                                               \
   .flags = OPTION_OWN,                                                                            \
   .names = language_levels},                                                                      \
      {"tokenizer",                                                                                \
       "FILE",                                                                                     \
       "A tokenizer.json of byte-level BPE, whose tokens take the place of --level's",             \
       OPTION_FIELD(type, member.tokenizer_file),                                                  \
       .flags = OPTION_OWN | OPTION_READS,                                                         \
       .most = 4095},                                                                              \
  {                                                                                                \
    "words", "N", "Entries of the vocabulary at most; rarer ones become <unk>",                    \
        OPTION_FIELD(type, member.words), .flags = OPTION_OWN, .least = 3, .most = 1e7             \
  }
#define LANGUAGE_SAMPLE_ROWS(type, member)                                                         \
  {"sample",                                                                                       \
   "N",                                                                                            \
   "Print N tokens drawn from the weights of --load, instead of training",                         \
   OPTION_FIELD(type, member.sample),                                                              \
   .flags = OPTION_OWN,                                                                            \
   .least = 1,                                                                                     \
   .most = 1e8},                                                                                   \
      {"temperature",                                                                              \
       "X",                                                                                        \
       "Of --sample: below 1 likely tokens become likelier, at 0 the likeliest is taken",          \
       OPTION_FIELD(type, member.temperature),                                                     \
       .flags = OPTION_OWN,                                                                        \
       .least = 0,                                                                                 \
       .most = 1000},                                                                              \
  {                                                                                                \
    "prompt", "TEXT", "Of --sample: beginning of the text", OPTION_FIELD(type, member.prompt),     \
        .flags = OPTION_OWN, .most = LANGUAGE_MOST_PROMPT                                          \
  }
extern const char *const language_levels[];

/* Opens the tokenizer or the vocabulary of the loaded weights, or makes one of the training text.
 */
enum sl_status language_open(const struct cli *cli, struct language *language,
                             const struct text_part *train);
/* Opens text and vocabulary, and makes both sets by make: of a part, and for the validation part
 * (like is the training set) as for the training part. A token file (.bin) becomes samples of
 * `steps` tokens; 0: it is refused. */
typedef enum sl_status language_set(const void *input, const struct text_part *part,
                                    const int32_t *tokens, int64_t count,
                                    const struct sl_dataset *like, struct sl_dataset **set);
enum sl_status language_open_data(const struct cli *cli, struct language *language,
                                  language_set *make, const void *input, int64_t steps,
                                  struct sl_dataset **train, struct sl_dataset **test);
/* struct program's takes_text: yes. */
bool language_takes_text(const void *input);
/* Number of tokens. */
int64_t language_size(const struct language *language);
void language_close(struct language *language);
/* The token at a line's end. */
int32_t language_line_end(const struct language *language);
/* Writes the tokenizer or the vocabulary beside the weights. */
enum sl_status language_save(const char *weights, const struct language *language);
/* cli_program's beside: the files that the program may write; which of them depends on the data. No
 * tokenizer that is read is among them: it is written as it is. */
const char *language_beside(const struct language *language, const char *weights, int index,
                            char *path, size_t size);

/* Prints text that a model with the weights of --load draws. build: as of struct program; steps: of
 * the model's samples; longest: the sequence that it takes at most, 0: any. Beyond it the text goes
 * on from the second half of what the model has read. */
typedef enum sl_status language_build(struct sl_model *model, const struct sl_dataset_info *data,
                                      enum sl_init init, const void *input);
enum sl_status language_sample(struct sl_context *context, const struct cli *cli,
                               struct language *language, language_build *build, const void *input,
                               int64_t steps, int64_t longest);
/* The unit of throughput. */
const char *language_unit(const struct language *language);
/* The last line of a training. */
void language_tell(const struct language *language, char *line, size_t size);
/* NULL, or what is wrong with the options. */
const char *language_check(const struct language *language);

#endif
