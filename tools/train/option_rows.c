/* The option table of the trainers, from the rows in tools/common/trainer_options.def. */
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/common/dataset_names.h"
#include "tools/train/augmentation.h"
#include "tools/train/cli.h"
#include "tools/train/ranks.h"

/* Names of the library's enums, by value. */
static const char *init_name(int i) {
  return i <= SL_INIT_ZERO ? sl_init_name((enum sl_init)i) : NULL;
}
static const char *math_name(int i) {
  return i <= SL_MATH_BF16 ? sl_math_name((enum sl_math)i) : NULL;
}
static const char *exchange_name(int i) {
  return i <= SL_EXCHANGE_AUTO ? sl_exchange_name((enum sl_exchange)i) : NULL;
}
static const char *kvstore_name(int i) {
  return i <= SL_KVSTORE_DIST_ASYNC_DEVICE ? sl_kvstore_name((enum sl_kvstore_kind)i) : NULL;
}

/* Generated data: the library's datasets, and lstm_lm's text. */
static const char *data_name(int i) {
  int count = 0;
  while (generated_dataset(count)) count++;
  return i < count ? generated_dataset(i) : i == count ? "grammar" : NULL;
}

static const char *data_help(void) {
  static char text[1000];
  char folders[200], own[300], generated[200];
  snprintf(text, sizeof text,
           "A folder with %s's files; data of your own: %s; generated %s. A language model: "
           "a text file, or generated sentences (grammar)",
           option_list(folder_dataset, "'s, ", "'s or ", folders, sizeof folders),
           option_list(own_dataset, "; ", "; ", own, sizeof own),
           option_list(generated_dataset, ", ", " or ", generated, sizeof generated));
  return text;
}

static const char *optimizer_help(void) {
  static char text[400];
  return option_list(sl_optimizer_name, ", ", ", ", text, sizeof text);
}

static const char *loss_help(void) {
  static char text[400];
  char names[200];
  snprintf(
      text, sizeof text,
      "%s. A number may follow: label smoothing of cross-entropy (:0.1), delta of huber (:0.5). Of "
      "several targets each has one: kind=cross-entropy,place=mse*0.5",
      option_list(sl_loss_name, ", ", ", ", names, sizeof names));
  return text;
}

static const char *missing_name(int missing) {
  static const char *const names[] = {"refuse", "drop", "mean"};
  return missing >= 0 && missing <= SL_MISSING_MEAN ? names[missing] : NULL;
}

/* "224x160", height and width */
static const char *read_size(const char *text, int64_t *height, int64_t *width) {
  const int64_t most = 16384;
  char first[8];
  size_t digits = strcspn(text, "x");
  if (digits >= sizeof first || text[digits] != 'x') return "must be like 224x224";
  snprintf(first, digits + 1, "%s", text);
  const char *why = option_whole(first, 1, most, height);
  return why ? why : option_whole(text + digits + 1, 1, most, width);
}

static json_t *size_of(int64_t height, int64_t width) {
  char text[32];
  if (!height) return json_null();
  snprintf(text, sizeof text, "%lldx%lld", (long long)height, (long long)width);
  return json_string(text);
}

static const char *parse_size(const struct option_row *row, const char *text, void *values) {
  struct cli *cli = values;
  (void)row;
  return read_size(text, &cli->height, &cli->width);
}

static json_t *size_json(const void *values) {
  const struct cli *cli = values;
  return size_of(cli->height, cli->width);
}

/* "2/5" */
static const char *parse_fold(const struct option_row *row, const char *text, void *values) {
  const int64_t most = 1000000000;
  int64_t fold, folds;
  char first[16];
  size_t digits = strcspn(text, "/");
  if (digits >= sizeof first || text[digits] != '/') return "must be like 2/5";
  snprintf(first, digits + 1, "%s", text);
  const char *why = option_whole(text + digits + 1, 2, most, &folds);
  if (!why) why = option_whole(first, 1, folds, &fold);
  return why ? why : option_take(row, text, values);
}

static const char *parse_crop(const struct option_row *row, const char *text, void *values) {
  struct cli *cli = values;
  (void)row;
  return read_size(text, &cli->crop_h, &cli->crop_w);
}

static json_t *crop_json(const void *values) {
  const struct cli *cli = values;
  return size_of(cli->crop_h, cli->crop_w);
}

static const char *parse_augment(const struct option_row *row, const char *text, void *values) {
  struct cli *cli = values;
  (void)row;
  cli->augment = true;
  cli->whole = false;
  return augmentation_parse(text, &cli->augmentation);
}

/* true for what is usual, else the list */
static json_t *augment_json(const void *values) {
  const struct cli *cli = values;
  bool listed = cli->augment && cli->augmentation.text;
  return listed ? sl__json_string(cli->augmentation.text) : json_boolean(cli->augment);
}

static const char *default_augment(const void *values) {
  return ((const struct cli *)values)->augment ? "" : NULL;
}

static const char *parse_no_augment(const struct option_row *row, const char *text, void *values) {
  struct cli *cli = values;
  (void)row, (void)text;
  cli->augment = false;
  cli->whole = true;
  return NULL;
}

static const char *default_epochs(const void *values) {
  static char text[32];
  snprintf(text, sizeof text, "%lld", (long long)((const struct cli *)values)->usual_epochs);
  return text;
}

/* The program's setting of its optimizer, which holds for that kind alone. */
static const char *number_text(float value) {
  static char text[32];
  snprintf(text, sizeof text, "%.6g", (double)value);
  return text;
}
static const struct sl_optimizer *optimizer_of(const void *values) {
  return &((const struct cli *)values)->optimizer;
}
static const char *default_lr(const void *values) { return number_text(optimizer_of(values)->lr); }
static const char *default_momentum(const void *values) {
  return number_text(optimizer_of(values)->momentum);
}
static const char *default_weight_decay(const void *values) {
  return number_text(optimizer_of(values)->weight_decay);
}
static const char *default_clip(const void *values) {
  return number_text(optimizer_of(values)->clip);
}

static const char *const schedule_names[] = {"constant", "step:", "drops:", "cosine", NULL};
static const char *const metric_names[] = {
#define SL__FIT_METRIC(key, ...) #key,
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
    NULL};
static const char *const device_names[] = {"cpu", "cpu:0", "cuda:0", "gpu-or-cpu", "any", NULL};
static const char *const class_weight_names[] = {"balanced", NULL};
static const char *const task_names[] = {"classification", "regression", NULL};
static const char *const split_names[] = {"even", "auto", NULL};
static const char *const placement_names[] = {"auto", NULL};
static const char *const compress_names[] = {"2bit:", "1bit", "fp16", "bf16", NULL};

/* "200" steps, or "10min" */
static const char *parse_interval(const struct option_row *row, const char *text, void *values) {
  static const char unit[] = "min";
  struct cli *cli = values;
  char number[32];
  size_t length = strlen(text);
  bool minutes = length >= strlen(unit) && !strcmp(text + length - strlen(unit), unit);
  (void)row;
  cli->checkpoint_every = 0;
  cli->checkpoint_minutes = 0;
  if (!minutes) return option_whole(text, 1, 1000000000, &cli->checkpoint_every);
  snprintf(number, sizeof number, "%.*s", (int)(length - strlen(unit)), text);
  return option_real(number, 1e-5, 1e6, &cli->checkpoint_minutes);
}

static json_t *interval_json(const void *values) {
  const struct cli *cli = values;
  char text[32];
  if (!(cli->checkpoint_minutes > 0)) return json_integer(cli->checkpoint_every);
  snprintf(text, sizeof text, "%gmin", cli->checkpoint_minutes);
  return json_string(text);
}

/* "100-120", from 1 on */
static const char *parse_steps(const struct option_row *row, const char *text, void *values) {
  const int64_t most = 1000000000;
  struct cli *cli = values;
  char first[24];
  size_t digits = strspn(text, "0123456789");
  (void)row;
  if (!digits || digits >= sizeof first || text[digits] != '-') return "must be like 100-120";
  snprintf(first, digits + 1, "%s", text);
  const char *why = option_whole(first, 1, most, &cli->trace_first);
  return why ? why : option_whole(text + digits + 1, cli->trace_first, most, &cli->trace_last);
}

/* Some options mean nothing without other ranks, or without checkpoints. */
static bool over_ranks(const void *values) { return ranks_wanted(values); }
static bool with_checkpoints(const void *values) {
  return ((const struct cli *)values)->checkpoint != NULL;
}

#define FIELD(member) OPTION_FIELD(struct cli, member)
/* A file's or a folder's name */
#define NAME .least = 1
#define TITLE(text) OPTION_TITLE(text),
#define LETTER_OPTION(short_name, name, argument, help, bits, ...)                                 \
  {name, argument, help, .flags = bits, .letter = short_name, __VA_ARGS__},
#define OPTION(name, argument, help, bits, ...) {name, argument, help, .flags = bits, __VA_ARGS__},

const struct option_row cli_rows[] = {
#include "tools/common/trainer_options.def"
};
const size_t cli_row_count = sizeof cli_rows / sizeof *cli_rows;
