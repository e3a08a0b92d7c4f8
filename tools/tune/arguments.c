/* Command lines: options that trials leave out, settings that the user has fixed, and quoting for a
 * shell. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/option_table.h"
#include "tools/tune/tune.h"

void words_add(struct words *words, const char *text, size_t length) {
  words->word = tune_grow(words->word, words->count + 2, sizeof *words->word);
  words->word[words->count++] = tune_text("%.*s", (int)length, text);
  words->word[words->count] = NULL;
}

void words_free(struct words *words) {
  for (size_t i = 0; i < words->count; i++) free(words->word[i]);
  free(words->word);
  *words = (struct words){0};
}

bool word_is_variable(const char *word) {
  size_t i = 0;
  if (!isalpha((unsigned char)word[0]) && word[0] != '_') return false;
  while (isalnum((unsigned char)word[i]) || word[i] == '_') i++;
  return word[i] == '=';
}

struct words words_of_setting(const char *setting) {
  struct words words = {0};
  for (const char *at = setting + strspn(setting, " \t"); *at; at += strspn(at, " \t")) {
    size_t length = strcspn(at, " \t");
    words_add(&words, at, length);
    at += length;
  }
  return words;
}

/* ---- the trainers' options ---- */

static const struct known {
  const char *name; /* without dashes */
  bool has_value, is_dropped;
  char letter; /* 0: none */
} known[] = {
#define TITLE(text)
#define LETTER_OPTION(letter, name, argument, help, flags, ...)                                    \
  {name, (argument) != NULL, ((flags)&OPTION_NO_TRIAL) != 0, letter},
#define OPTION(name, argument, help, flags, ...) LETTER_OPTION(0, name, argument, help, flags)
#include "tools/common/trainer_options.def"
};
enum { KNOWN = sizeof known / sizeof *known };

/* The option for a word; argp takes abbreviations, and refuses ambiguous ones. */
static const struct known *find_option(const char *word) {
  const size_t shortest = 2; /* "sa" of "--save" */
  if (word[0] != '-') return NULL;
  for (int i = 0; i < KNOWN && word[1] != '-'; i++)
    if (known[i].letter && word[1] == known[i].letter && !word[2]) return &known[i];
  if (word[1] != '-') return NULL;
  const char *name = word + 2;
  size_t length = strcspn(name, "=");
  for (int i = 0; i < KNOWN; i++)
    if (strlen(known[i].name) == length && !strncmp(known[i].name, name, length)) return &known[i];
  for (int i = 0; i < KNOWN && length >= shortest; i++)
    if (!strncmp(known[i].name, name, length)) return &known[i];
  return NULL;
}

struct words words_for_trials(char *const *program, size_t *place) {
  size_t whole = words_before_more(program);
  struct words words = {0};
  bool placed = false;
  for (size_t i = 0; program[i]; i++) {
    const struct known *option = i ? find_option(program[i]) : NULL;
    bool apart = option && option->has_value && !strchr(program[i], '=');
    if (i >= whole && !placed) *place = words.count;
    placed = i >= whole;
    if (!option || !option->is_dropped)
      words_add(&words, program[i], strlen(program[i]));
    else if (apart && program[i + 1])
      i++;
  }
  if (!placed) *place = words.count;
  return words;
}

static bool is_executable(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* As execvp() finds programs. */
static bool is_program(const char *word) {
  const char *folders = getenv("PATH");
  bool found = false;
  if (strchr(word, '/') || !folders) return is_executable(word);
  while (*word && folders && !found) {
    size_t length = strcspn(folders, ":");
    char *path = tune_text("%.*s%s%s", (int)length, folders, length ? "/" : "", word);
    found = is_executable(path);
    free(path);
    folders = folders[length] ? folders + length + 1 : NULL;
  }
  return found;
}

/* Is it a program in a folder that one of the words before names, as in `env -C DIR -- ./lenet`
 * and `env --chdir=DIR -- ./lenet`? */
static bool is_program_in(char *const *words, size_t count, const char *word) {
  bool found = false;
  for (size_t i = 1; i < count && !found && *word != '/' && strchr(word, '/'); i++) {
    const char *value = words[i][0] == '-' ? strchr(words[i], '=') : NULL;
    char *path = tune_text("%s/%s", value ? value + 1 : words[i], word);
    found = is_executable(path);
    free(path);
  }
  return found;
}

size_t words_before_more(char *const *program) {
  size_t i = 0;
  for (; program[i]; i++) {
    const char *next = program[i + 1];
    if (!i || strcmp(program[i], "--") != 0) continue;
    if (!next || !(is_program(next) || is_program_in(program, i, next))) break;
  }
  return i;
}

bool is_fixed(char *const *program, const char *name) {
  size_t length = strlen(name);
  if (strncmp(name, "--", 2) != 0 && getenv(name)) return true;
  for (size_t i = 1; program[i]; i++) {
    const struct known *option = find_option(program[i]);
    if (option && !strncmp(name, "--", 2) && !strcmp(option->name, name + 2)) return true;
    /* as in `env NAME=VALUE lenet` and `mpirun -x NAME=VALUE lenet` */
    if (!strncmp(program[i], name, length) && program[i][length] == '=') return true;
  }
  return false;
}

/* ---- quoting for a shell ---- */

static char *join(char *text, const char *more) {
  char *joined = tune_text("%s%s%s", text, *text ? " " : "", more);
  free(text);
  return joined;
}

/* 'it'\''s' */
static char *add_quoted(char *text, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (*word && strspn(word, plain) == strlen(word)) return join(text, word);
  char *quoted = tune_grow(NULL, 4 * strlen(word) + 3, 1), *end = quoted;
  *end++ = '\'';
  for (; *word; word++) {
    if (*word == '\'') end = stpcpy(end, "'\\'");
    *end++ = *word;
  }
  strcpy(end, "'");
  text = join(text, quoted);
  free(quoted);
  return text;
}

char *command_line(char *const *program, const char *setting, const char *const *variables) {
  struct words words = words_of_setting(setting);
  char *text = tune_text("%s", "");
  for (size_t i = 0; variables[i]; i++) {
    if (!getenv(variables[i])) continue;
    char *variable = tune_text("%s=%s", variables[i], getenv(variables[i]));
    text = add_quoted(text, variable);
    free(variable);
  }
  for (size_t i = 0; i < words.count; i++)
    if (word_is_variable(words.word[i])) text = add_quoted(text, words.word[i]);
  size_t before = words_before_more(program);
  for (size_t i = 0; i < before; i++) text = add_quoted(text, program[i]);
  for (size_t i = 0; i < words.count; i++)
    if (!word_is_variable(words.word[i])) text = add_quoted(text, words.word[i]);
  for (size_t i = before; program[i]; i++) text = add_quoted(text, program[i]);
  words_free(&words);
  return text;
}
