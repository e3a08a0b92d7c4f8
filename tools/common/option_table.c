/* Command lines by a table: its rows are given to argp, which knows abbreviations, --help and
 * --usage. */
#include "tools/common/option_table.h"

#include <argp.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/json.h"
#include "core/base/replace.h"
#include "tools/common/command_line.h"
#include "tools/common/memory_text.h"

enum { FIRST_KEY = 256, KEY_MANUAL = 0x10000, KEY_COMPLETION };

/* ---- values ---- */

const char *option_problem(const char *format, ...) {
  static char text[1200];
  char next[sizeof text]; /* an argument may be the problem before this one */
  va_list list;
  va_start(list, format);
  vsnprintf(next, sizeof next, format, list);
  va_end(list);
  return strcpy(text, next);
}

const char *option_name(const struct option_row *row, int index) {
  if (row->name_of) return row->name_of(index);
  return row->names ? row->names[index] : NULL;
}

/* "A, B or C" of a row's names */
static const char *list_names(const struct option_row *row, const char *between, const char *last,
                              char *list, size_t size) {
  size_t used = 0;
  const char *name;
  *list = '\0';
  for (int i = 0; (name = option_name(row, i)) && used < size; i++) {
    const char *before = !i ? "" : option_name(row, i + 1) ? between : last;
    used += (size_t)snprintf(list + used, size - used, "%s%s", before, name);
  }
  return list;
}

const char *option_list(const char *(*name_of)(int index), const char *between, const char *last,
                        char *list, size_t size) {
  return list_names(&(struct option_row){.name_of = name_of}, between, last, list, size);
}

/* A number within the row's range; NULL for others, and for a 0 that has a text of its own. */
static const char *default_number(const struct option_row *row, double value) {
  static char text[32];
  if (value < row->least || value > row->most || (value == 0 && row->unset)) return NULL;
  snprintf(text, sizeof text, "%.12g", value);
  return text;
}

/* The value that holds without the option; NULL: none. A flag that is set has "". */
static const char *default_of(const struct option_row *row, const void *values) {
  static char seed[32];
  const void *field = (const char *)values + row->field;
  bool clears = row->flags & OPTION_CLEARS;
  switch (row->kind) {
    case OPTION_FLAG: return *(const bool *)field && !clears ? "" : NULL;
    case OPTION_INT: return default_number(row, *(const int *)field);
    case OPTION_INT64: return default_number(row, (double)*(const int64_t *)field);
    case OPTION_UINT64:
      snprintf(seed, sizeof seed, "%llu", (unsigned long long)*(const uint64_t *)field);
      return seed;
    case OPTION_REAL: return default_number(row, sl__json_number(*(const double *)field));
    case OPTION_TEXT: return *(const char *const *)field;
    case OPTION_CHOICE:
      return row->unset && !*(const int *)field ? NULL : option_name(row, *(const int *)field);
    case OPTION_CUSTOM: break;
  }
  return NULL;
}

char *option_help(const struct option_row *row, const void *values) {
  const char *help = row->help_of ? row->help_of() : row->help;
  const char *value = values ? default_of(row, values) : NULL;
  struct memory_text text;
  FILE *out = memory_text_begin(&text);
  if (!out) return NULL;
  if (!value && values && row->unset_of) value = row->unset_of(values);
  if (value)
    fprintf(out, *value ? "%s (default %s)" : "%s (default)", help, value);
  else
    fprintf(out, row->unset ? "%s (default: %s)" : "%s", help, row->unset);
  return memory_text_end(&text, NULL);
}

/* Both kinds of whole numbers: strtoull knows all values of either. */
static bool read_whole(const char *text, uint64_t *value) {
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  *value = strtoull(text, NULL, 10);
  return digits && text[digits] == '\0' && errno != ERANGE;
}

const char *option_whole(const char *text, int64_t least, int64_t most, int64_t *value) {
  uint64_t number;
  if (!read_whole(text, &number) || number > INT64_MAX || (int64_t)number < least ||
      (int64_t)number > most)
    return option_problem("must be a whole number from %lld to %lld", (long long)least,
                          (long long)most);
  *value = (int64_t)number;
  return NULL;
}

const char *option_real(const char *text, double least, double most, double *value) {
  char *end;
  double number = strtod(text, &end);
  /* strtod also takes blanks, hexadecimal, "inf" and "nan": no option has a use for them */
  if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text) || *end != '\0' ||
      !(number >= least && number <= most))
    return option_problem("must be a number from %g to %g", least, most);
  *value = number;
  return NULL;
}

/* "unknown; use split or drop" */
static const char *unknown_name(const struct option_row *row) {
  char list[512];
  return option_problem("unknown; use %s", list_names(row, ", ", " or ", list, sizeof list));
}

static const char *take_choice(const struct option_row *row, const char *text, int *value) {
  const char *name;
  for (int i = 0; (name = option_name(row, i)); i++)
    if (!strcmp(name, text)) {
      *value = i;
      return NULL;
    }
  return unknown_name(row);
}

static const char *take_text(const struct option_row *row, const char *text, const char **value) {
  size_t length = strlen(text);
  if (!length && row->least > 0) return "the name is empty";
  if (row->most > 0 && (double)length > row->most)
    return option_problem("at most %.0f bytes, not %zu", row->most, length);
  *value = text;
  return NULL;
}

static const char *take_seed(const char *text, uint64_t *value) {
  return read_whole(text, value) ? NULL : "must be a whole number from 0 to 2^64 - 1";
}

static const char *take_int(const struct option_row *row, const char *text, int *value) {
  int64_t whole = 0;
  const char *why = option_whole(text, (int64_t)row->least, (int64_t)row->most, &whole);
  if (!why) *value = (int)whole;
  return why;
}

const char *option_take(const struct option_row *row, const char *text, void *values) {
  void *field = (char *)values + row->field;
  switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = !(row->flags & OPTION_CLEARS); return NULL;
    case OPTION_INT: return take_int(row, text, field);
    case OPTION_INT64: return option_whole(text, (int64_t)row->least, (int64_t)row->most, field);
    case OPTION_UINT64: return take_seed(text, field);
    case OPTION_REAL: return option_real(text, row->least, row->most, field);
    case OPTION_TEXT: return take_text(row, text, field);
    case OPTION_CHOICE: return take_choice(row, text, field);
    case OPTION_CUSTOM: break;
  }
  return NULL;
}

/* ---- the command line ---- */

static void refuse(const struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
static void refuse(const struct argp_state *state, const char *format, ...) {
  const struct option_program *program = state->input;
  va_list list;
  if (program->before_refusal) program->before_refusal();
  va_start(list, format);
  fprintf(stderr, "%s: ", state->name);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  exit(EXIT_USAGE);
}

/* The row of a key; *number: which one of its set. */
static const struct option_row *find_row(const struct option_program *program, int key,
                                         const struct option_set **set, size_t *number) {
  int row_key = FIRST_KEY;
  for (int s = 0; s < OPTION_MAX_SETS; s++)
    for (size_t i = 0; i < program->sets[s].count; i++, row_key++) {
      const struct option_row *row = &program->sets[s].rows[i];
      if (!row->name || key != (row->letter ? row->letter : row_key)) continue;
      *set = &program->sets[s];
      *number = i;
      return row;
    }
  return NULL;
}

static void parse_row(const struct argp_state *state, const struct option_set *set, size_t number,
                      const char *text) {
  const struct option_row *row = &set->rows[number];
  const char *why =
      row->parse ? row->parse(row, text, set->values) : option_take(row, text, set->values);
  if (why && text) refuse(state, "--%s '%s': %s", row->name, text, why);
  if (why) refuse(state, "--%s: %s", row->name, why);
  if (set->given) set->given[number] = text ? text : "";
}

/* The next row that has the flag, from row *i of set *s on, and its file; NULL: none is left. */
static const struct option_row *next_file(const struct option_program *program, unsigned flag,
                                          int *s, size_t *i, const char **path) {
  for (; *s < OPTION_MAX_SETS; ++*s, *i = 0)
    while (*i < program->sets[*s].count) {
      const struct option_row *row = &program->sets[*s].rows[(*i)++];
      if (!(row->flags & flag)) continue;
      *path = *(const char *const *)((const char *)program->sets[*s].values + row->field);
      if (*path) return row;
    }
  return NULL;
}

static bool ends_in(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && !strcasecmp(text + length - tail, end);
}

/* Some options take a name or numbers instead of a file, whatever files of that name are there. */
static bool is_other(const struct option_row *row, const char *text) {
  const char *name;
  if ((row->flags & OPTION_OR_NUMBERS) && !text[strspn(text, "0123456789.eE+-,")]) return true;
  if ((row->flags & OPTION_OR_COLUMN) && !ends_in(text, ".npy")) return true;
  for (int i = 0; (name = option_name(row, i)); i++)
    if (!strcmp(name, text)) return true;
  return false;
}

/* Is it the file of the text, or of its part before a colon: "set.h5:/x", "net.safetensors:!fc."?
 */
static bool is_file_of(const char *path, const char *text) {
  bool is = sl__is_same_inode(path, text);
  for (const char *colon = strchr(text, ':'); colon && !is; colon = strchr(colon + 1, ':')) {
    char *file = strndup(text, (size_t)(colon - text));
    is = file && sl__is_same_inode(path, file);
    free(file);
  }
  return is;
}

/* Does the folder, or one of its folders or of theirs (train/cat/), hold the path? */
static bool holds(const char *folder, const char *path) {
  char parent[PATH_MAX];
  const char *slash = strrchr(path, '/');
  int length = slash ? (int)(slash - path) + 1 : 2;
  if (length > PATH_MAX - 16) return false;
  snprintf(parent, sizeof parent, "%.*s", length, slash ? path : "./");
  for (int level = 0; level < 3; level++, strcat(parent, "../"))
    if (sl__is_same_inode(parent, folder)) return true;
  return false;
}

/* The names that the readers of data/ take in folders (npy, pictures, MNIST, CIFAR-10). This
 * archive is linked without the library, too, so they are here once more. */
static bool is_data_name(const char *path) {
  static const char *const names[] = {"*.npy",
                                      "*.jpg",
                                      "*.jpeg",
                                      "*.png",
                                      "*.ppm",
                                      "*.pgm",
                                      "train-images-idx3-ubyte",
                                      "train-images-idx3-ubyte.gz",
                                      "train-labels-idx1-ubyte",
                                      "train-labels-idx1-ubyte.gz",
                                      "t10k-images-idx3-ubyte",
                                      "t10k-images-idx3-ubyte.gz",
                                      "t10k-labels-idx1-ubyte",
                                      "t10k-labels-idx1-ubyte.gz",
                                      "data_batch_[1-5].bin",
                                      "test_batch.bin"};
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (fnmatch(names[i], name, FNM_PERIOD | FNM_CASEFOLD) == 0) return true;
  return false;
}

/* The index-th file that an output writes, its own first; NULL behind the last. */
static const char *written_file(const struct option_program *program, const struct option_row *row,
                                const char *path, int index, char file[PATH_MAX]) {
  if (!index) return path;
  if (!program->beside || !(row->flags & OPTION_WEIGHTS)) return NULL;
  return program->beside(program->input, path, index - 1, file, PATH_MAX);
}

/* reader: the option that names the file to be read; NULL: an argument does. */
static void check_written(const struct argp_state *state, const struct option_row *reader,
                          const char *read) {
  const struct option_row *writer;
  const char *path, *file;
  char beside[PATH_MAX];
  int s = 0;
  if (reader && is_other(reader, read)) return;
  for (size_t i = 0; (writer = next_file(state->input, OPTION_WRITES, &s, &i, &path));) {
    if (reader && (reader->flags & OPTION_DATASET) && is_data_name(path) && holds(read, path))
      refuse(state, "--%s %s: has the name of a file of --%s %s; name another file", writer->name,
             path, reader->name, read);
    if (reader && (reader->flags & writer->flags & OPTION_WEIGHTS)) continue;
    for (int n = 0; (file = written_file(state->input, writer, path, n, beside)); n++)
      if (is_file_of(file, read))
        refuse(state, "--%s %s: would overwrite %s%s%s%s; name another file", writer->name, path,
               reader ? "--" : "", reader ? reader->name : "", reader ? " " : "", read);
  }
}

/* file: comes with the weights that the writer names. */
static void check_beside(const struct argp_state *state, const struct option_row *writer,
                         const char *weights, const char *file) {
  const struct option_row *other;
  const char *path;
  int s = 0;
  for (size_t i = 0; (other = next_file(state->input, OPTION_WRITES, &s, &i, &path));)
    if (other != writer && sl__file_is_same(path, file))
      refuse(state, "--%s %s: --%s %s writes %s, too; name another file", other->name, path,
             writer->name, weights, file);
}

static void check_files(const struct argp_state *state) {
  const struct option_row *row;
  const char *path, *file;
  char beside[PATH_MAX];
  int s = 0;
  for (size_t i = 0; (row = next_file(state->input, OPTION_READS, &s, &i, &path));)
    check_written(state, row, path);
  s = 0;
  for (size_t i = 0; (row = next_file(state->input, OPTION_WRITES, &s, &i, &path));)
    for (int n = 1; (file = written_file(state->input, row, path, n, beside)); n++)
      check_beside(state, row, path, file);
}

/* Does the word stand for an option's file? Then that option's flags say what may be written. */
static bool is_an_options(const struct option_program *program, const char *word) {
  const char *path;
  int s = 0;
  for (size_t i = 0; next_file(program, OPTION_READS, &s, &i, &path);)
    if (path == word) return true;
  return false;
}

static void parse_argument(struct argp_state *state, char *text) {
  const struct option_program *program = state->input;
  const char *why = NULL;
  if (!program->argument)
    refuse(state, "'%s': not understood; all input is given by options, see --help", text);
  char **words = state->argv + state->next - 1;
  int taken = program->argument(program->input, words, state->argc - state->next + 1, &why);
  if (why) refuse(state, "%s", why);
  for (int i = 0; i < taken; i++)
    if (!is_an_options(program, words[i])) check_written(state, NULL, words[i]);
  state->next += taken - 1;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  const struct option_program *program = state->input;
  const struct option_set *set;
  const char *why;
  size_t number;
  switch (key) {
    case KEY_MANUAL: option_print_manual(program, state->name, stdout); exit(EXIT_DONE);
    case KEY_COMPLETION: option_print_completion(program, state->name, stdout); exit(EXIT_DONE);
    case ARGP_KEY_ARG: parse_argument(state, text); return 0;
    case ARGP_KEY_END:
      why = program->check ? program->check(program->input) : NULL;
      if (why) refuse(state, "%s", why);
      check_files(state);
      return 0;
    default:
      if (!find_row(program, key, &set, &number)) return ARGP_ERR_UNKNOWN;
      parse_row(state, set, number, text);
      return 0;
  }
}

static struct argp_option argp_row(const struct option_row *row, const void *values, int key,
                                   int group) {
  struct argp_option option = {.doc = row->help, .group = group};
  if (!row->name) return option;
  option.doc = option_help(row, values);
  option.name = row->name;
  option.key = row->letter ? row->letter : key;
  option.arg = row->argument;
  if (row->flags & OPTION_OPTIONAL) option.flags = OPTION_ARG_OPTIONAL;
  return option;
}

static void fill_options(const struct option_program *program, struct argp_option *options) {
  int key = FIRST_KEY, group = 0;
  size_t used = 0;
  for (int s = 0; s < OPTION_MAX_SETS; s++) {
    const struct option_set *set = &program->sets[s];
    if (set->title && set->count)
      options[used++] = (struct argp_option){.doc = set->title, .group = ++group};
    for (size_t i = 0; i < set->count; i++) {
      if (!set->rows[i].name) group++;
      options[used++] = argp_row(&set->rows[i], set->values, key++, group);
    }
  }
  options[used++] =
      (struct argp_option){.name = "help-man", .key = KEY_MANUAL, .flags = OPTION_HIDDEN};
  options[used] = (struct argp_option){
      .name = "help-completion", .key = KEY_COMPLETION, .flags = OPTION_HIDDEN};
}

/* What --help has around the options. */
static char *help_text(const struct option_program *program) {
  struct memory_text text;
  FILE *out = memory_text_begin(&text);
  if (!out) return NULL;
  fprintf(out, "%s\v", program->about);
  if (program->description) fprintf(out, "%s\n\n", program->description);
  fprintf(out, "Exit status: %s", program->exit_status ? program->exit_status : OPTION_EXIT_STATUS);
  if (program->examples) fprintf(out, "\n\nExamples:\n%s", program->examples);
  return memory_text_end(&text, NULL);
}

void option_parse(const struct option_program *program, int argc, char **argv) {
  size_t rows = 5;
  for (int s = 0; s < OPTION_MAX_SETS; s++) rows += program->sets[s].count + 1;
  struct argp_option *options = calloc(rows, sizeof *options);
  char *help = help_text(program);
  if (!options || !help) {
    fprintf(stderr, "%s: no memory for the command line\n", program_name(argv[0]));
    exit(EXIT_FAILED);
  }
  fill_options(program, options);
  const struct argp argp = {options, parse_option, program->usage, help, NULL, NULL, NULL};
  start_program(&argp, program->in_order ? ARGP_IN_ORDER : 0, argc, argv, (void *)program);
  for (size_t i = 0; i < rows; i++)
    if (options[i].name) free((char *)options[i].doc); /* titles have texts of the rows */
  free(options);
  free(help);
}
