#include "tools/train/private_text.h"

#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char between[] = " \t\n'\"(),;=<>";

/* ---- the list ---- */

static bool add(struct private_texts *texts, const char *text, size_t length, const char *instead) {
  while (length > 1 && text[length - 1] == '/') length--;
  if (!length || (length == 1 && strchr("/.", *text))) return true;
  if (texts->count == texts->room) {
    size_t room = 2 * texts->room + 16;
    struct private_text *list = realloc(texts->list, room * sizeof *list);
    if (!list) return false;
    texts->list = list;
    texts->room = room;
  }
  struct private_text *last = &texts->list[texts->count++];
  *last = (struct private_text){.text = strndup(text, length), .instead = strdup(instead)};
  return last->text && last->instead;
}

/* The text, and what the names of files beside it begin with: "net." of "net.json". */
static bool add_file(struct private_texts *texts, const char *text, size_t length,
                     const char *instead) {
  size_t dot = length;
  while (dot && !strchr("./", text[dot - 1])) dot--;
  bool has_end = dot > 1 && text[dot - 1] == '.' && text[dot - 2] != '/' && text[dot - 2] != '.';
  return add(texts, text, length, instead) && (!has_end || add(texts, text, dot, instead));
}

bool private_text_is_own(const struct option_row *row, const char *text) {
  const char *name;
  if (row->kind != OPTION_TEXT && row->kind != OPTION_CUSTOM) return false;
  for (int i = 0; (name = option_name(row, i)); i++)
    if (!strcmp(name, text)) return false;
  return strspn(text, "0123456789-.:,eE+") != strlen(text);
}

/* The whole, its parts ("a.npy,b.npy", "set.h5:/x"), and of a path its last name: messages have
 * any of them. */
static bool add_value(struct private_texts *texts, const struct option_row *row,
                      const char *value) {
  char instead[64], part[PATH_MAX];
  bool is_file = row->flags & (OPTION_READS | OPTION_WRITES);
  snprintf(instead, sizeof instead, "(--%s)", row->name);
  bool added = add_file(texts, value, strlen(value), instead);
  for (const char *rest = value; added && is_file && *rest;) {
    size_t length = strcspn(rest, ",:");
    snprintf(part, sizeof part, "%.*s", (int)length, rest);
    const char *slash = strrchr(part, '/'), *name = slash ? slash + 1 : part;
    if (private_text_is_own(row, part)) added = add_file(texts, part, strlen(part), instead);
    if (added && private_text_is_own(row, name))
      added = add_file(texts, name, strlen(name), instead);
    rest += length + (rest[length] != '\0');
  }
  return added;
}

static bool add_options(struct private_texts *texts, const struct option_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    const struct option_row *row = &set->rows[i];
    const char *value = NULL;
    if (!row->name) continue;
    if (set->given) value = set->given[i];
    if (!value && row->kind == OPTION_TEXT)
      value = *(const char *const *)((const char *)set->values + row->field);
    if (value && private_text_is_own(row, value) && !add_value(texts, row, value)) return false;
  }
  return true;
}

static bool add_place(struct private_texts *texts) {
  char host[256] = "", folder[PATH_MAX];
  const struct passwd *user = getpwuid(geteuid());
  const char *home = getenv("HOME");
  gethostname(host, sizeof host - 1);
  return (!getcwd(folder, sizeof folder) || add(texts, folder, strlen(folder), "(path)")) &&
         (!home || add(texts, home, strlen(home), "(path)")) &&
         add(texts, host, strlen(host), "(name)") &&
         (!user || add(texts, user->pw_name, strlen(user->pw_name), "(name)"));
}

static int compare(const void *a, const void *b) {
  const char *one = ((const struct private_text *)a)->text;
  const char *other = ((const struct private_text *)b)->text;
  size_t length = strlen(one), others = strlen(other);
  return length != others ? (length < others) - (length > others) : strcmp(one, other);
}

bool private_texts_open(struct private_texts *texts, const struct cli *cli) {
  const struct option_set shared = cli_set(cli);
  *texts = (struct private_texts){0};
  bool added = add_options(texts, &cli->own) && add_options(texts, &shared) && add_place(texts);
  if (added) qsort(texts->list, texts->count, sizeof *texts->list, compare);
  return added;
}

void private_texts_close(struct private_texts *texts) {
  for (size_t i = 0; i < texts->count; i++) {
    free(texts->list[i].text);
    free(texts->list[i].instead);
  }
  free(texts->list);
  *texts = (struct private_texts){0};
}

/* ---- a text ---- */

/* A word of a message that is a path: absolute, below . or .. or ~, or the name of a file that is
 * there. "img/s" and "conv1.forward/s1" are none. */
static bool is_path(const char *word) {
  return strchr(word, '/') && (strchr("/~", *word) || !strncmp(word, "./", 2) ||
                               !strncmp(word, "../", 3) || access(word, F_OK) == 0);
}

/* "10.0.0.7" or "10.0.0.7:29400" */
static bool is_address(const char *word) {
  int dots = 0;
  const char *c = word;
  for (; isdigit((unsigned char)*c) || *c == '.'; c++) dots += *c == '.';
  return dots == 3 && (*c == '\0' || *c == ':');
}

/* Does a word go on at this character? */
static bool is_letter(char c) { return isalnum((unsigned char)c) || c == '_' || (c & 0x80); }

/* Up to the next blank or quote, without the end of a sentence. */
static size_t word_length(const char *text) {
  size_t length = strcspn(text, between);
  return length > 1 && strchr(":.", text[length - 1]) ? length - 1 : length;
}

/* The names behind a private folder, which may have blanks if a colon ends them. */
static size_t path_length(const char *text) {
  size_t length = strcspn(text, ":'\"(),;\n");
  return text[length] == ':' ? length + word_length(text + length + 1) * (text[length + 1] == '/')
                             : word_length(text);
}

/* Length of the private text that begins here; 0: none does. */
static size_t match(const char *private, const char *text, bool begins) {
  size_t length = strlen(private);
  if (strncmp(text, private, length) != 0 || (!begins && is_letter(*private))) return 0;
  char last = private[length - 1], next = text[length];
  if (last == '.') return is_letter(next) ? length + word_length(text + length) : 0;
  if (is_letter(last) && is_letter(next)) return 0;
  return next == '/' ? length + path_length(text + length) : length;
}

/* The first piece of the text at `at`: *shown, *size: what stands there instead. Returns its
 * length. */
static size_t next_piece(const struct private_texts *texts, const char *text, const char *at,
                         const char **shown, size_t *size) {
  char word[PATH_MAX];
  bool begins = at == text || !is_letter(at[-1]);
  size_t length = 0;
  *shown = NULL;
  for (size_t i = 0; i < texts->count && !length; i++) {
    length = match(texts->list[i].text, at, begins);
    if (length) *shown = texts->list[i].instead;
  }
  if (!length && (at == text || strchr(between, at[-1]))) {
    length = word_length(at);
    snprintf(word, sizeof word, "%.*s", (int)length, at);
    *shown = is_path(word) ? "(path)" : is_address(word) ? "(address)" : NULL;
  }
  if (*shown) {
    *size = strlen(*shown);
    return length;
  }
  *shown = at;
  return *size = 1;
}

void private_texts_print(const struct private_texts *texts, const char *text, FILE *out) {
  const char *shown;
  size_t size;
  for (const char *at = text; *at; fwrite(shown, 1, size, out))
    at += next_piece(texts, text, at, &shown, &size);
}

void private_texts_hide(const struct private_texts *texts, const char *text, char *to,
                        size_t size) {
  const char *shown;
  size_t used = 0, more;
  for (const char *at = text; *at; used += more) {
    at += next_piece(texts, text, at, &shown, &more);
    if (used + more >= size) break;
    memcpy(to + used, shown, more);
  }
  to[used] = '\0';
}
