/* A locale that writes numbers with a comma, whatever the system has installed. */
#ifndef SL_TESTS_COMMON_COMMA_LOCALE_H
#define SL_TESTS_COMMON_COMMA_LOCALE_H

#include <locale.h>

#include "tests/common/files.h"

/* Sets it for the program; localedef makes it in the test's folder. false without the sources of
 * locales (Debian's package locales): says so. */
static inline bool set_comma_locale(void) {
  char command[9000];
  snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
           test_folder);
  if (system(command) != 0) fprintf(stderr, "# no localedef, or no sources: tests are skipped\n");
  setenv("LOCPATH", test_folder, 1);
  return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

#endif
