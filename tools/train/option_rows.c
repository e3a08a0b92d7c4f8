/* The options that all trainers share: a new one is a row here and its field in struct cli. */
#include <stdio.h>
#include <string.h>

#include "tools/common/dataset_names.h"
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
  static char text[800];
  char folders[300], generated[300];
  snprintf(text, sizeof text,
           "Images: a folder with %s's files, or generated %s (default: digits). A language model: "
           "a text file, or generated sentences (default: grammar)",
           option_list(folder_dataset, "'s, ", "'s or ", folders, sizeof folders),
           option_list(generated_dataset, ", ", " or ", generated, sizeof generated));
  return text;
}

static const char *other_optimizer(int i) { return sl_optimizer_name(i + 1); }

static const char *optimizer_help(void) {
  static char text[400];
  char others[300];
  snprintf(text, sizeof text, "%s (default), %s", sl_optimizer_name(0),
           option_list(other_optimizer, ", ", ", ", others, sizeof others));
  return text;
}

static const char *const schedule_names[] = {"constant", "step:", "drops:", "cosine", NULL};
static const char *const device_names[] = {"cpu", "cpu:0", "cuda:0", "gpu-or-cpu", "any", NULL};
static const char *const split_names[] = {"even", "auto", NULL};
static const char *const placement_names[] = {"auto", NULL};
static const char *const compress_names[] = {"2bit:", "1bit", "fp16", "bf16", NULL};

static const char *parse_kvstore(const struct option_row *row, const char *text, void *values) {
  ((struct cli *)values)->has_kvstore = true;
  return option_take(row, text, values);
}

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
#define TRAINING .flags = OPTION_ALIKE | OPTION_LOGGED | OPTION_NOTED
#define MACHINE .flags = OPTION_LOGGED | OPTION_NOTED /* of this rank */
#define RUN .flags = OPTION_LOGGED                    /* does not change the weights */

const struct option_row cli_rows[] = {
    OPTION_TITLE("Data:"),
    {"data", "PATH|NAME", NULL, FIELD(data), NAME, MACHINE, .name_of = data_name,
     .help_of = data_help},
    {"batch", "N", "Samples a step", FIELD(batch), .least = 1, .most = 1e6, TRAINING},
    {"no-shuffle", NULL, "Keep the order of the files", FIELD(shuffle),
     .flags = OPTION_ALIKE | OPTION_LOGGED | OPTION_NOTED | OPTION_CLEARS},
    {"augment", NULL,
     "Shift samples by up to 2 pixels (CIFAR-10: by 4, and mirror every second one)",
     FIELD(augment), TRAINING},
    {"no-augment", NULL, "Take the samples as they are", FIELD(augment), .flags = OPTION_CLEARS},

    OPTION_TITLE("Training:"),
    {"epochs", "N", "Passes over the training set", FIELD(epochs), .least = 1, .most = 1e6,
     TRAINING},
    {"steps", "N", "Stop after N steps; without --epochs: across epochs", FIELD(steps), .least = 1,
     .most = 1e9, TRAINING},
    {"seed", "N", "Seed of weights, order and augmentation (default 1)", FIELD(seed), TRAINING},
    {"init", "NAME", "Initial weights: default (PyTorch's), xavier, he, uniform, zero", FIELD(init),
     .name_of = init_name, TRAINING},
    {"optimizer", "NAME", NULL, FIELD(optimizer_name), .name_of = sl_optimizer_name, TRAINING,
     .help_of = optimizer_help},
    {"lr", "X", "Learning rate", FIELD(lr), .least = 1e-12, .most = 1000, TRAINING},
    {"momentum", "X", "Momentum of sgd and nag, from 0 to below 1", FIELD(momentum), .least = 0,
     .most = 0.9999, TRAINING},
    {"weight-decay", "X", "Weight decay (default 0)", FIELD(weight_decay), .least = 0, .most = 10,
     TRAINING},
    {"lr-schedule", "TEXT",
     "constant (default), step:PERIOD[:GAMMA], drops:STEP[:STEP...] (to a tenth at each), "
     "cosine[:FLOOR]; each may end in ,warmup:STEPS. A number of steps may be a share of all "
     "steps: 50%",
     FIELD(lr_schedule), .names = schedule_names, TRAINING},
    {"clip", "X", "Largest global norm of the gradient; 0: any", FIELD(clip), .least = 0,
     .most = 1e9, TRAINING},

    OPTION_TITLE("Devices:"),
    {"devices", "LIST", "cpu, cpu:0,cpu:1, cuda:0,cpu, gpu-or-cpu (default: all that StarPU finds)",
     FIELD(devices), NAME, MACHINE, .names = device_names},
    {"replicas", "N", "Slices of a batch (default: one a worker)", FIELD(replicas), .least = 1,
     .most = 4096, MACHINE},
    {"microbatches", "N", "Cut each replica's slice further, to save memory (default 1)",
     FIELD(microbatches), .least = 1, .most = 4096, MACHINE},
    {"split", "WEIGHTS",
     "Rows of a batch by replica, for devices of unequal speed: '4,1', even (default), or auto: "
     "measure the devices, and take the fastest of such a split, even slices, and more slices "
     "than devices",
     FIELD(split), NAME, MACHINE, .names = split_names},
    {"stages", "N", "Cut the model into N runs of layers of like cost, one a worker (a pipeline)",
     FIELD(stages), .least = 1, .most = 4096, MACHINE},
    {"placement", "TEXT",
     "Which layers run where: 'conv1,conv2=cpu:0;fc1-2=cpu:1'; several devices are for replicas. "
     "'fc1-2=rank1/cpu:0': on that one of every group of ranks (--kvstore dist_sync). auto: "
     "measure the layers and decide (with --stages N: at most N stages)",
     FIELD(placement), NAME, MACHINE, .names = placement_names},
    {"placement-file", "FILE", "The same, a rule a line", FIELD(placement_file), NAME},
    {"kvstore", "NAME",
     "Where weights are updated: local (the CPU; default), device (default where all devices are "
     "GPUs); over the ranks that mpirun started: dist_sync, dist_async, dist_sync_device, "
     "dist_async_device",
     FIELD(kvstore), .name_of = kvstore_name, .parse = parse_kvstore, TRAINING},
    {"math", "NAME",
     "f32 (default); tf32: a GPU may round the factors of products; bf16: activations in 16 bits, "
     "parameters, sums and the optimizer's state stay f32",
     FIELD(math), .name_of = math_name, TRAINING},
    {"tune", NULL, "Measure the kernels for each shape once and remember the fastest", FIELD(tune),
     RUN},
    {"memory-limit", "LIST",
     "Memory for tensors, such as cpu=1G,cuda=8G (default: all there is); what does not fit waits "
     "in main memory or in --swap's folder",
     FIELD(memory_limit), NAME, MACHINE},
    {"swap", "DIR", "Folder on a disk for tensors that do not fit into main memory", FIELD(swap),
     NAME, MACHINE},
    {"stall-timeout", "SECONDS",
     "When no task has run for SECONDS, print which task waits for which, and end; 0: never "
     "(default 60)",
     FIELD(stall_timeout), .least = 0, .most = 1e6, RUN},

    OPTION_TITLE("Ranks (mpirun -np N ..., --kvstore dist_...):"),
    {"servers", "K", "The last K ranks only own parameters (default 0)", FIELD(servers), .least = 0,
     .most = 1e5, TRAINING, .applies = over_ranks},
    {"bigarray-bound", "N", "Spread a layer with more parameters over all owners (default 1000000)",
     FIELD(bigarray_bound), .least = 1, .most = 5e8, TRAINING, .applies = over_ranks},
    {"compress", "NAME",
     "Gradients are sent as 2bit:THRESHOLD or 1bit, with error feedback, fp16, bf16 (default: "
     "uncompressed)",
     FIELD(compress), NAME, TRAINING, .names = compress_names, .applies = over_ranks},
    {"max-staleness", "S",
     "dist_async: steps that a worker may be ahead of the slowest (default: any)",
     FIELD(max_staleness), .least = 1, .most = 1e6, TRAINING, .applies = over_ranks},
    {"exchange", "NAME",
     "How gradients travel: lane (default; by the workers themselves), starpu (StarPU-MPI, whose "
     "thread wants a core), auto (measured at the start)",
     FIELD(exchange), .name_of = exchange_name, MACHINE, .applies = over_ranks},
    {"timeout", "SECONDS", "Give up a rank that is silent for SECONDS; 0: never (default 60)",
     FIELD(timeout), .least = 0, .most = 1e6, RUN, .applies = over_ranks},

    OPTION_TITLE("Files:"),
    {"load", "FILE", "Start from these weights (safetensors, PyTorch's names)", FIELD(load), NAME,
     RUN},
    {"save", "FILE", "Write the weights after every epoch and at the end", FIELD(save), NAME, RUN},
    {"log", "FILE.jsonl", "Write a JSON line a step and an evaluation; starling-plot draws it",
     FIELD(log), NAME, RUN},
    {"checkpoint", "DIR",
     "Write all that a run needs to go on, to the bit, into this folder; also when interrupted",
     FIELD(checkpoint), NAME, RUN, .applies = with_checkpoints},
    {"checkpoint-every", "N|Nmin",
     "Steps between two checkpoints, or minutes: 10min (default: an epoch's steps)",
     .parse = parse_interval, .json = interval_json, RUN, .applies = with_checkpoints},
    {"keep", "K", "Keep the newest K checkpoints (default 3)", FIELD(keep), .least = 1, .most = 1e6,
     RUN, .applies = with_checkpoints},
    {"resume", NULL, "Go on from the newest whole checkpoint, or begin at step 0 if there is none",
     FIELD(resume), RUN, .applies = with_checkpoints},
    {"trace", "DIR", "Record which device ran which task when, and draw it into this folder",
     FIELD(trace), NAME, RUN},
    {"trace-steps", "A-B", "Record these steps alone (default 11-20)", .parse = parse_steps},

    OPTION_TITLE("Output:"),
    {"summary", NULL, "Print layers, owners of the parameters and memory before training",
     FIELD(summary)},
    {"quiet", NULL, "Print errors only", FIELD(quiet), .letter = 'q'},
};
const size_t cli_row_count = sizeof cli_rows / sizeof *cli_rows;
