/* The bar is drawn by one write a tenth of a second at most, and asks for the terminal's width each
 * time: so it neither flickers nor minds a resized window, and no signal handler is needed. */
#include "parallel/fit/progress.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"

static const double SECONDS_BETWEEN_BARS = 0.1;
static const double SECONDS_BETWEEN_LINES = 5;

/* ---- samples a second ---- */

void sl__meter_restart(struct sl__meter *meter) {
  int64_t samples = meter->count ? meter->samples[(meter->count - 1) % SL__METER_WINDOW] : 0;
  meter->count = 1;
  meter->time[0] = sl__seconds();
  meter->samples[0] = samples;
}

double sl__meter_add(struct sl__meter *meter, int64_t samples) {
  int64_t last = meter->count - 1,
          first = last >= SL__METER_WINDOW - 1 ? last - SL__METER_WINDOW + 2 : 0;
  double now = sl__seconds();
  int64_t total = meter->samples[last % SL__METER_WINDOW] + samples;
  while (first < last && meter->time[(first + 1) % SL__METER_WINDOW] < now - 1) first++;
  double elapsed = now - meter->time[first % SL__METER_WINDOW];
  double rate =
      elapsed > 0 ? (double)(total - meter->samples[first % SL__METER_WINDOW]) / elapsed : 0;
  meter->time[meter->count % SL__METER_WINDOW] = now;
  meter->samples[meter->count % SL__METER_WINDOW] = total;
  meter->count++;
  return rate;
}

/* ---- the bar ---- */

/* mpirun gives its ranks a terminal, wherever its own output goes. */
static bool on_terminal(void) {
  const char *term = getenv("TERM");
  int rank;
  return !sl_launched(&rank) && isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

/* By the user's locale; the program's own stays. */
static bool shows_utf8(void) {
  locale_t users = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
  if (!users) return false;
  bool shows = strcmp(nl_langinfo_l(CODESET, users), "UTF-8") == 0;
  freelocale(users);
  return shows;
}

void sl__progress_start(struct sl__progress *progress, const char *unit, bool quiet, int64_t begun,
                        int64_t steps, int64_t epochs) {
  *progress = (struct sl__progress){.unit = unit,
                                    .quiet = quiet,
                                    .live = !quiet && on_terminal(),
                                    .fancy = shows_utf8(),
                                    .steps = steps,
                                    .done = begun,
                                    .begun = begun,
                                    .epochs = epochs,
                                    .loss = NAN};
  progress->resumed = progress->drawn = sl__seconds();
}

void sl__progress_pause(struct sl__progress *progress) {
  progress->busy += sl__seconds() - progress->resumed;
}

void sl__progress_resume(struct sl__progress *progress) { progress->resumed = sl__seconds(); }

/* "2:05" or "1:02:05" */
static void time_text(double seconds, char *text, size_t size) {
  long s = seconds < 359999 ? lround(seconds) : 359999;
  if (s >= 3600)
    snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else
    snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

static int terminal_width(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

/* The bar itself, cells wide, to text; eighths of a cell where the terminal can show them. */
static void bar_text(const struct sl__progress *progress, int cells, char *text, size_t size) {
  static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  double share = (double)progress->done / (double)progress->steps;
  int filled = (int)(share * cells * 8);
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < cells && used + 4 < size; i++) {
    int part = filled - 8 * i;
    const char *cell = part >= 8 ? "█" : eighths[part > 0 ? part : 0];
    if (!progress->fancy) cell = part >= 8 ? "#" : ".";
    used += (size_t)snprintf(text + used, size - used, "%s", cell);
  }
}

const char *sl__progress_loss(double loss, char *text, size_t size) {
  bool fixed = loss == 0 || (isgreaterequal(fabs(loss), 0.01) && isless(fabs(loss), 1e6));
  snprintf(text, size, fixed ? "%.4f" : "%.4g", loss);
  return text;
}

static void draw_bar(struct sl__progress *progress, int64_t epoch, double samples_per_s,
                     double left) {
  enum { MOST_CELLS = 40 };
  char facts[160], loss[32], bar[4 * MOST_CELLS + 1], time_left[32], line[512];
  time_text(left, time_left, sizeof time_left);
  int length =
      snprintf(facts, sizeof facts, " %3d %%  epoch %lld/%lld  loss %s  %.0f %s/s  %s left",
               (int)(100 * progress->done / progress->steps), (long long)epoch + 1,
               (long long)progress->epochs, sl__progress_loss(progress->loss, loss, sizeof loss),
               samples_per_s, progress->unit, time_left);
  int width = terminal_width() - 1; /* a full line would wrap on some terminals */
  int cells = width - length < MOST_CELLS ? width - length : MOST_CELLS;
  if (cells < 5) cells = 0;
  bar_text(progress, cells, bar, sizeof bar);
  if (length > width) facts[width > 0 ? width : 0] = '\0';
  length = snprintf(line, sizeof line, "\r%s%s\033[K", bar, facts);
  fwrite(line, 1, (size_t)length, stdout);
  fflush(stdout);
}

static void print_plain(const struct sl__progress *progress, int64_t epoch, double samples_per_s,
                        double left) {
  char time_left[32], loss[32];
  time_text(left, time_left, sizeof time_left);
  printf("step %lld/%lld  epoch %lld  loss %s  %.0f %s/s  %s left\n", (long long)progress->done,
         (long long)progress->steps, (long long)epoch + 1,
         sl__progress_loss(progress->loss, loss, sizeof loss), samples_per_s, progress->unit,
         time_left);
  fflush(stdout);
}

void sl__progress_step(struct sl__progress *progress, const struct sl_report *report,
                       double samples_per_s) {
  progress->done++;
  progress->loss =
      isnan(progress->loss) ? report->loss : 0.95 * progress->loss + 0.05 * report->loss;
  if (progress->quiet) return;
  double now = sl__seconds();
  double pause = progress->live ? SECONDS_BETWEEN_BARS : SECONDS_BETWEEN_LINES;
  if (now - progress->drawn < pause) return;
  progress->drawn = now;
  double spent = progress->busy + now - progress->resumed;
  double left = spent / (double)(progress->done - progress->begun) *
                (double)(progress->steps - progress->done);
  if (progress->live)
    draw_bar(progress, report->epoch, samples_per_s, left);
  else
    print_plain(progress, report->epoch, samples_per_s, left);
}

void sl__progress_clear(struct sl__progress *progress) {
  if (!progress->live) return;
  fputs("\r\033[K", stdout);
  fflush(stdout);
}

void sl__progress_print(struct sl__progress *progress, const char *format, ...) {
  if (progress->quiet) return;
  va_list list;
  va_start(list, format);
  sl__progress_clear(progress);
  vprintf(format, list);
  putchar('\n');
  fflush(stdout);
  va_end(list);
}
