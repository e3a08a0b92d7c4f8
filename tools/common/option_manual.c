/* The man page and the shell's completion of a program, from its table of options. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/command_line.h"
#include "tools/common/option_table.h"

/* The day on which the pages' text last changed: two builds make the same pages. */
#define MANUAL_DATE "2026-11-22"

static const struct option_row common_rows[] = {
    {"help", NULL, "Print a list of the options", .letter = '?'},
    {"usage", NULL, "Print a short usage message"},
    {"version", NULL, "Print the version", .letter = 'V'}};
static const struct option_set common = {common_rows, sizeof common_rows / sizeof *common_rows,
                                         NULL, "Help:", NULL};

/* ---- roff ---- */

/* A line must not begin with a control character, and a hyphen is to be copied as it is. */
static void print_roff(FILE *out, const char *text, size_t length) {
  bool begins = true;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    if (begins && (c == '.' || c == '\'')) fputs("\\&", out);
    if (c == '\\')
      fputs("\\e", out);
    else if (c == '-')
      fputs("\\-", out);
    else if (c == '\'')
      fputs("\\(aq", out);
    else
      fputc(c, out);
    begins = c == '\n';
  }
}

static void print_roff_text(FILE *out, const char *text) { print_roff(out, text, strlen(text)); }

/* Paragraphs with an empty line between; lines that begin with a blank stay lines. */
static void print_paragraphs(FILE *out, const char *text) {
  bool literal = false, first = true;
  while (*text) {
    size_t length = strcspn(text, "\n");
    bool code = *text == ' ';
    if (code != literal) fputs(code ? ".PP\n.nf\n" : ".fi\n", out);
    if (!length && !first && text[1]) fputs(".PP\n", out);
    literal = code;
    first = false;
    if (length) {
      print_roff(out, text, length);
      fputc('\n', out);
    }
    text += length + (text[length] == '\n');
  }
  if (literal) fputs(".fi\n", out);
}

static void print_section(FILE *out, const char *title, const char *text) {
  if (!text) return;
  fprintf(out, ".SH %s\n", title);
  print_paragraphs(out, text);
}

static void print_row(FILE *out, const struct option_row *row, const void *values) {
  char *help = option_help(row, values);
  fputs(".TP\n\\fB", out);
  if (row->letter) fprintf(out, "\\-%c\\fR, \\fB", row->letter);
  fputs("\\-\\-", out);
  print_roff_text(out, row->name);
  fputs("\\fR", out);
  if (row->argument) {
    fputs(row->flags & OPTION_OPTIONAL ? "[=\\fI" : "=\\fI", out);
    print_roff_text(out, row->argument);
    fputs(row->flags & OPTION_OPTIONAL ? "\\fR]" : "\\fR", out);
  }
  fputc('\n', out);
  print_roff_text(out, help ? help : "");
  fputc('\n', out);
  free(help);
}

/* A title ends with a colon for --help. */
static void print_title(FILE *out, const char *title) {
  fputs(".SS ", out);
  print_roff(out, title, strlen(title) - (title[strlen(title) - 1] == ':'));
  fputc('\n', out);
}

static void print_rows(FILE *out, const struct option_set *set) {
  if (set->title && set->count) print_title(out, set->title);
  for (size_t i = 0; i < set->count; i++)
    if (set->rows[i].name)
      print_row(out, &set->rows[i], set->values);
    else
      print_title(out, set->rows[i].help);
}

/* A line a form of the command line. */
static void print_synopsis(FILE *out, const char *name, const char *usage) {
  fputs(".SH SYNOPSIS\n", out);
  for (const char *line = usage ? usage : "";; line++) {
    size_t length = strcspn(line, "\n");
    fputs("\\fB", out);
    print_roff_text(out, name);
    fputs("\\fR [\\fIOPTION\\fR...]", out);
    if (length) fputc(' ', out);
    print_roff(out, line, length);
    line += length;
    fputs(*line ? "\n.br\n" : "\n", out);
    if (!*line) return;
  }
}

/* "Train LeNet on MNIST." becomes "train LeNet on MNIST". */
static void print_name(FILE *out, const char *name, const char *about) {
  size_t length = strlen(about);
  fputs(".SH NAME\n", out);
  print_roff_text(out, name);
  fprintf(out, " \\- %c", tolower((unsigned char)*about));
  print_roff(out, about + 1, length - 1 - (about[length - 1] == '.'));
  fputc('\n', out);
}

void option_print_manual(const struct option_program *program, const char *name, FILE *out) {
  fputs(".TH ", out);
  for (const char *c = name; *c; c++) fputc(toupper((unsigned char)*c), out);
  fprintf(out, " 1 \"" MANUAL_DATE "\" \"%s\" \"Starling\"\n", program_version());
  print_name(out, name, program->about);
  print_synopsis(out, name, program->usage);
  print_section(out, "DESCRIPTION", program->description ? program->description : program->about);
  fputs(".SH OPTIONS\nA long option may be shortened as long as it stays unambiguous.\n", out);
  for (int s = 0; s < OPTION_MAX_SETS; s++) print_rows(out, &program->sets[s]);
  print_rows(out, &common);
  print_section(out, "EXIT STATUS",
                program->exit_status ? program->exit_status : OPTION_EXIT_STATUS);
  print_section(out, "ENVIRONMENT", program->manual.environment);
  print_section(out, "FILES", program->manual.files);
  print_section(out, "EXAMPLES", program->examples);
  print_section(out, "SEE ALSO", program->manual.see_also);
}

/* ---- bash ---- */

/* What the value of an option is: words, and files or folders. */
static void print_values(FILE *out, const struct option_row *row) {
  const char *name;
  bool file = strstr(row->argument, "FILE") || strstr(row->argument, "PATH");
  fprintf(out, "    --%s) words='", row->name);
  for (int i = 0; (name = option_name(row, i)); i++) fprintf(out, "%s%s", i ? " " : "", name);
  fprintf(out, "' action=%s ;;\n", file ? "file" : strstr(row->argument, "DIR") ? "directory" : "");
}

void option_print_completion(const struct option_program *program, const char *name, FILE *out) {
  fputs("_starling_", out);
  for (const char *c = name; *c; c++) fputc(*c == '-' ? '_' : *c, out);
  fputs("() {\n  options='", out);
  for (int s = 0; s <= OPTION_MAX_SETS; s++) {
    const struct option_set *set = s < OPTION_MAX_SETS ? &program->sets[s] : &common;
    for (size_t i = 0; i < set->count; i++) {
      const struct option_row *row = &set->rows[i];
      bool value = row->argument && !(row->flags & OPTION_OPTIONAL);
      if (row->name) fprintf(out, "--%s%s ", row->name, value ? "=" : "");
    }
  }
  fputs("'\n  case $1 in\n", out);
  for (int s = 0; s < OPTION_MAX_SETS; s++)
    for (size_t i = 0; i < program->sets[s].count; i++)
      if (program->sets[s].rows[i].argument) print_values(out, &program->sets[s].rows[i]);
  fputs("    *) return 1 ;;\n  esac\n}\n", out);
}
