/* A training's log, as starling-plot and starling-report read it, and the report of it. */
#include "tests/fuzz/fuzz.h"
#include "tools/report/page.h"

static void write_report(struct run_curves *run) {
  struct facts facts;
  struct report report = {.runs = run, .facts = &facts, .count = 1};
  char *page = NULL;
  size_t size;
  FILE *out = open_memstream(&page, &size);
  if (!out || !facts_find(run, &facts)) abort();
  report_write(out, &report);
  fclose(out);
  /* text of the log is no element of the page */
  if (strstr(page, "<script") || strstr(page, "<img")) abort();
  free(page);
}

FUZZER(log)(const uint8_t *bytes, size_t size) {
  struct run_curves run;
  char message[400];
  if (curves_read(fuzz_file(0, bytes, size), &run, message, sizeof message)) {
    write_report(&run);
  } else if (!*message || strchr(message, '\n')) {
    abort();
  }
  curves_free(&run);
  return 0;
}
