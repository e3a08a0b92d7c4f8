/* The options of a program as rows of plain data. One row parses the option, prints it in --help,
 * the man page and the shell's completion, writes it into the JSON of a run, and says whether all
 * ranks must have it alike. */
#ifndef SL_TOOLS_COMMON_OPTION_TABLE_H
#define SL_TOOLS_COMMON_OPTION_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The type of the field that an option sets. */
enum option_kind {
  OPTION_CUSTOM, /* the row's own parse function knows */
  OPTION_FLAG,   /* bool */
  OPTION_INT,
  OPTION_INT64,
  OPTION_UINT64,
  OPTION_REAL,  /* double */
  OPTION_TEXT,  /* const char * into argv */
  OPTION_CHOICE /* an enum: the index of a name */
};

/* Further properties of an option. */
enum option_flags {
  OPTION_ALIKE = 1,     /* all ranks must have the same value */
  OPTION_LOGGED = 2,    /* the first line of a training log has it */
  OPTION_NOTED = 4,     /* checkpoints have it: it has a say in the training */
  OPTION_CLEARS = 8,    /* a flag that makes its field false: "no-shuffle" clears shuffle */
  OPTION_OPTIONAL = 16, /* its value may be left out; parse gets NULL then */
  OPTION_NO_TRIAL = 32, /* starling-tune leaves it out: it writes files, or sets length or output */
  /* Of OPTION_TEXT: names a file that is read, or written. A file that is written must not be one
   * that is read, here or by an argument, except where both options are of weights; nor must a file
   * beside weights be another option's. */
  OPTION_READS = 64,
  OPTION_WRITES = 128,
  OPTION_WEIGHTS = 256,
  /* Of OPTION_READS: numbers instead of a file, or a column's name, if that is no .npy. Of a row
   * with names, these are no files either. */
  OPTION_OR_NUMBERS = 512,
  OPTION_OR_COLUMN = 1024,
  /* Of OPTION_READS: a folder of data, in which no output gets the name of such a file. */
  OPTION_DATASET = 2048
};

/* An option of the training: most of the shared ones, and all that describe a network. */
#define OPTION_OWN (OPTION_ALIKE | OPTION_LOGGED | OPTION_NOTED)
/* An option about this rank's machine, and one that does not change the weights. */
#define OPTION_MACHINE (OPTION_LOGGED | OPTION_NOTED)
#define OPTION_RUN OPTION_LOGGED

struct option_row {
  const char *name; /* without dashes; NULL: a title above the rows that follow, which is help */
  const char *argument; /* "N", "FILE"; NULL: a flag */
  const char *help;
  enum option_kind kind;
  unsigned flags;
  int letter; /* of a short option; 0: none */
  size_t field;
  /* Range of a number; of a text that of its length in bytes (most 0: any). */
  double least, most;
  /* Names for an OPTION_CHOICE, by index; of other kinds what completion offers. Either a list that
   * ends with NULL, or a function that returns NULL behind the last. */
  const char *const *names;
  const char *(*name_of)(int index);
  /* Instead of what the kind does. Returns NULL, or the message. */
  const char *(*parse)(const struct option_row *row, const char *text, void *values);
  /* Instead of the field's value in JSON; NULL: the field's. */
  json_t *(*json)(const void *values);
  /* Instead of help: a text with names that the library lists. */
  const char *(*help_of)(void);
  /* What holds without the option if the field is 0, NULL or below `least` before the command line
   * is read: "one a worker"; instead, a function of the values. NULL: nothing to say. */
  const char *unset;
  const char *(*unset_of)(const void *values);
  /* NULL, or whether a log has this option at all. */
  bool (*applies)(const void *values);
};

/* The kind and the place of a field: {"batch", "N", "...", OPTION_FIELD(struct cli, batch), ...} */
#define OPTION_FIELD(type, member)                                                                 \
  .field = offsetof(type, member),                                                                 \
  .kind = _Generic(((type *)0)->member, bool                                                       \
                   : OPTION_FLAG, int                                                              \
                   : OPTION_INT, int64_t                                                           \
                   : OPTION_INT64, uint64_t                                                        \
                   : OPTION_UINT64, double                                                         \
                   : OPTION_REAL, const char *                                                     \
                   : OPTION_TEXT, unsigned                                                         \
                   : OPTION_CHOICE)

#define OPTION_TITLE(text)                                                                         \
  { .help = text }

/* Rows whose fields are members of one struct. */
struct option_set {
  const struct option_row *rows;
  size_t count;
  void *values;
  const char *title;  /* above the rows in --help; NULL: they have titles of their own */
  const char **given; /* NULL, or [count]: becomes the last text of each option ("" of a flag) */
};

/* Sections of the man page: paragraphs with an empty line between; NULL: no section. */
struct option_manual {
  const char *environment, *files, *see_also;
};

enum { OPTION_MAX_SETS = 2 };

#define OPTION_EXIT_STATUS "0 done; 1 failed; 2 bad usage."

struct option_program {
  const char *usage;       /* the arguments, a line a form: "MODEL INPUT...\n--bench MODEL" */
  const char *about;       /* one sentence */
  const char *description; /* paragraphs with an empty line between, or NULL */
  const char *exit_status; /* NULL: as of all programs */
  const char *examples;    /* command lines, or NULL */
  struct option_manual manual;
  struct option_set sets[OPTION_MAX_SETS];
  bool in_order; /* options end at the first argument */
  void *input;   /* for the two functions */
  /* Takes one or several of the words that follow. Returns their number, or 0 and why not. NULL:
   * the program has no arguments. */
  int (*argument)(void *input, char **words, int count, const char **why);
  /* Checks options against each other. Returns NULL, or the message. May be NULL. */
  const char *(*check)(void *input);
  /* Into path, the index-th file that an option of weights writes besides its own: `weights`.
   * Returns path; NULL behind the last. May be NULL. */
  const char *(*beside)(void *input, const char *weights, int index, char *path, size_t size);
  /* Called before a wrong option ends the program; may be NULL. */
  void (*before_refusal)(void);
};

/* Reads the command line. A wrong option ends the program with EXIT_USAGE and one line on the error
 * stream that names the option, the text and the allowed values. */
void option_parse(const struct option_program *program, int argc, char **argv);

/* Reads one text as a row's kind says, for parse functions. Returns NULL, or the message. */
const char *option_take(const struct option_row *row, const char *text, void *values);

/* A number from a part of an option's text. Returns NULL, or the message. */
const char *option_whole(const char *text, int64_t least, int64_t most, int64_t *value);
const char *option_real(const char *text, double least, double most, double *value);

/* For parse and check functions: a message, in a buffer that the next call overwrites. */
const char *option_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "A, B or C" of the names from 0 to the one before NULL: what is between two names, and what is
 * between the last two. Returns list. */
const char *option_list(const char *(*name_of)(int index), const char *between, const char *last,
                        char *list, size_t size);

/* The help of a row, and the value that holds without the option: "Width of each (default 200)".
 * values: of the row's set before the command line is read. To be freed; NULL: no memory. */
char *option_help(const struct option_row *row, const void *values);

/* The name at an index, or NULL behind the last. */
const char *option_name(const struct option_row *row, int index);

/* ---- the options in logs, checkpoints and comparisons of ranks ---- */

/* The rows of a set that have all of the flags, by their names (of "no-x": by "x"). A set with
 * `given` has its options as texts, null where an option was not given. NULL: no memory. */
json_t *option_json(const struct option_set *set, unsigned flags);

/* A line "--name VALUE" for each row that has all of the flags. */
void option_print(FILE *out, const struct option_set *set, unsigned flags);

/* ---- the hidden options --help-man and --help-completion ---- */

void option_print_manual(const struct option_program *program, const char *name, FILE *out);
void option_print_completion(const struct option_program *program, const char *name, FILE *out);

#endif
