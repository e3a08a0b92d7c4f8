/* What the library says of its kinds of layers: each kind has a line, each of its options another
 * one, and no line is about an option that there is not. */
#include "nn/layer.h"
#include "tests/common/harness.h"

/* The length of the key that a line begins with; 0: it is not "KEY: TEXT". */
static size_t key_length(const char *line) {
  size_t length = strcspn(line, ":\n");
  return !strncmp(line + length, ": ", 2) ? length : 0;
}

static bool has_line(const char *keys, const char *name) {
  for (const char *line = keys; *line; line += strcspn(line, "\n") + 1)
    if (key_length(line) == strlen(name) && !strncmp(line, name, strlen(name))) return true;
  return false;
}

static bool has_field(const struct sl_field *field, const char *name, size_t length) {
  for (; field && field->name; field++)
    if (strlen(field->name) == length && !strncmp(field->name, name, length)) return true;
  return false;
}

static void each_kind_is_explained(void **state) {
  (void)state;
#define SL__KIND(kind) &sl__##kind##_kind,
  static const struct sl__layer_kind *const own[] = {
#include "nn/kinds.def"
  };
#undef SL__KIND
  const int count = sizeof own / sizeof *own;
  for (int i = 0; i < count; i++) {
    const struct sl_kind kind = sl_kind(i);
    assert_string_equal(kind.name, own[i]->name);
    if (!kind.about || strlen(kind.about) < 10 || strlen(kind.about) > 99)
      fail_msg("%s: .about must be a line of 10 to 99 letters", kind.name);
    if (!kind.keys) fail_msg("%s: .keys is missing", kind.name);
    for (const struct sl_field *field = own[i]->fields; field && field->name; field++)
      if (!has_line(kind.keys, field->name))
        fail_msg("%s: .keys has no line \"%s: ...\"", kind.name, field->name);
    for (const char *line = kind.keys; *line; line += strcspn(line, "\n") + 1) {
      assert_true(line[strcspn(line, "\n")] == '\n');
      if (!has_field(own[i]->fields, line, key_length(line)))
        fail_msg("%s: .keys: no option has the line \"%.*s\"", kind.name, (int)strcspn(line, "\n"),
                 line);
    }
  }
  assert_null(sl_kind(count).name);
  assert_null(sl_kind(-1).name);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_is_explained)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
