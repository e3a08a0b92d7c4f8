/* The options that all trainers share. The checks that the library can make are left to it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tools/train/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

SL_API const char *argp_program_version = /* visible, or argp does not find it */
    "Starling " PACKAGE_VERSION;

enum key {
  KEY_DATA = 256,
  KEY_BATCH,
  KEY_NO_SHUFFLE,
  KEY_AUGMENT,
  KEY_NO_AUGMENT,
  KEY_EPOCHS,
  KEY_STEPS,
  KEY_SEED,
  KEY_INIT,
  KEY_OPTIMIZER,
  KEY_LR,
  KEY_MOMENTUM,
  KEY_WEIGHT_DECAY,
  KEY_LR_SCHEDULE,
  KEY_CLIP,
  KEY_DEVICES,
  KEY_REPLICAS,
  KEY_MICROBATCHES,
  KEY_SPLIT,
  KEY_STAGES,
  KEY_PLACEMENT,
  KEY_PLACEMENT_FILE,
  KEY_KVSTORE,
  KEY_SERVERS,
  KEY_BIGARRAY_BOUND,
  KEY_COMPRESS,
  KEY_MAX_STALENESS,
  KEY_EXCHANGE,
  KEY_TIMEOUT,
  KEY_MATH,
  KEY_TUNE,
  KEY_MEMORY_LIMIT,
  KEY_SWAP,
  KEY_STALL_TIMEOUT,
  KEY_LOAD,
  KEY_SAVE,
  KEY_LOG,
  KEY_CHECKPOINT,
  KEY_CHECKPOINT_EVERY,
  KEY_KEEP,
  KEY_RESUME,
  KEY_TRACE,
  KEY_TRACE_STEPS,
  KEY_SUMMARY
};

#define HEADER(text, number)                                                                       \
  { .doc = text, .group = number }

static const struct argp_option options[] = {
    HEADER("Data:", 1),
    {"data", KEY_DATA, "PATH|NAME", 0,
     "Images: a folder with MNIST's or CIFAR-10's files, or generated digits or shapes "
     "(default: digits). A language model: a text file, or generated sentences (default: grammar)",
     1},
    {"batch", KEY_BATCH, "N", 0, "Samples a step", 1},
    {"no-shuffle", KEY_NO_SHUFFLE, NULL, 0, "Keep the order of the files", 1},
    {"augment", KEY_AUGMENT, NULL, 0,
     "Shift samples by up to 2 pixels (CIFAR-10: by 4, and mirror every second one)", 1},
    {"no-augment", KEY_NO_AUGMENT, NULL, 0, "Take the samples as they are", 1},

    HEADER("Training:", 2),
    {"epochs", KEY_EPOCHS, "N", 0, "Times through the training set", 2},
    {"steps", KEY_STEPS, "N", 0, "Stop after so many steps (alone: across epochs)", 2},
    {"seed", KEY_SEED, "N", 0, "Seed of weights, order and augmentation (default 1)", 2},
    {"init", KEY_INIT, "NAME", 0, "Initial weights: default (PyTorch's), xavier, he, uniform, zero",
     2},
    {"optimizer", KEY_OPTIMIZER, "NAME", 0, "sgd (default), nag, adam, adamw", 2},
    {"lr", KEY_LR, "X", 0, "Learning rate", 2},
    {"momentum", KEY_MOMENTUM, "X", 0, "Momentum of sgd and nag, from 0 to below 1", 2},
    {"weight-decay", KEY_WEIGHT_DECAY, "X", 0, "Weight decay (default 0)", 2},
    {"lr-schedule", KEY_LR_SCHEDULE, "TEXT", 0,
     "constant (default), step:PERIOD[:GAMMA], drops:STEP[:STEP...] (to a tenth at each), "
     "cosine[:FLOOR]; each may end in ,warmup:STEPS. Steps may be shares of all: 50%",
     2},
    {"clip", KEY_CLIP, "X", 0, "Greatest global norm of the gradient; 0: any", 2},

    HEADER("Devices:", 3),
    {"devices", KEY_DEVICES, "LIST", 0,
     "cpu, cpu:0,cpu:1, cuda:0,cpu, gpu-or-cpu (default: all that StarPU finds)", 3},
    {"replicas", KEY_REPLICAS, "N", 0, "Slices of a batch (default: one a worker)", 3},
    {"microbatches", KEY_MICROBATCHES, "N", 0,
     "Cut each replica's slice further, to save memory (default 1)", 3},
    {"split", KEY_SPLIT, "WEIGHTS", 0,
     "Rows of a batch by replica, for devices of unequal speed: '4,1', even (default), or auto: "
     "measure the devices, and take the quickest of such a split, even slices, and more slices "
     "than devices",
     3},
    {"stages", KEY_STAGES, "N", 0,
     "Cut the model into N runs of layers of like cost, one a worker (a pipeline)", 3},
    {"placement", KEY_PLACEMENT, "TEXT", 0,
     "Which layers run where: 'conv1,conv2=cpu:0;fc1-2=cpu:1'; several devices are for replicas. "
     "'fc1-2=rank1/cpu:0': on that one of every group of ranks (--kvstore dist_sync). auto: "
     "measure the layers and decide (--stages: at most so many)",
     3},
    {"placement-file", KEY_PLACEMENT_FILE, "FILE", 0, "The same, a rule a line", 3},
    {"kvstore", KEY_KVSTORE, "NAME", 0,
     "Who updates the weights: local (the CPU; default), device (default where all devices are "
     "GPUs); over the ranks that mpirun started: "
     "dist_sync, dist_async, dist_sync_device, dist_async_device",
     3},
    {"math", KEY_MATH, "NAME", 0,
     "f32 (default); tf32: a GPU may round the factors of products; bf16: activations in 16 bits, "
     "parameters, sums and the optimizer's state stay f32",
     3},
    {"tune", KEY_TUNE, NULL, 0, "Measure the kernels for each shape once and remember", 3},
    {"memory-limit", KEY_MEMORY_LIMIT, "LIST", 0,
     "Memory for tensors, such as cpu=1G,cuda=8G (default: all there is); what does not fit waits "
     "in main memory or in --swap's folder",
     3},
    {"swap", KEY_SWAP, "DIR", 0, "Folder on a disk for what main memory has no room for", 3},
    {"stall-timeout", KEY_STALL_TIMEOUT, "SECONDS", 0,
     "Tell what waits for what, and end, when no task has run for so long; 0: never (default 60)",
     3},

    HEADER("Ranks (mpirun -np N ..., --kvstore dist_...):", 4),
    {"servers", KEY_SERVERS, "K", 0, "The last K ranks only own parameters (default 0)", 4},
    {"bigarray-bound", KEY_BIGARRAY_BOUND, "N", 0,
     "Spread a layer with more parameters over all owners (default 1000000)", 4},
    {"compress", KEY_COMPRESS, "NAME", 0,
     "Gradients are sent as 2bit:THRESHOLD or 1bit, with error feedback, fp16, bf16 (default: "
     "whole)",
     4},
    {"max-staleness", KEY_MAX_STALENESS, "S", 0,
     "dist_async: steps that a worker may be ahead of the slowest (default: any)", 4},
    {"exchange", KEY_EXCHANGE, "NAME", 0,
     "How gradients travel: lane (default; the workers see to it), starpu (StarPU-MPI, whose "
     "thread "
     "wants a core), auto (measured at the start)",
     4},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "Give up a rank that is silent for so long; 0: never (default 60)", 4},

    HEADER("Files:", 5),
    {"load", KEY_LOAD, "FILE", 0, "Start from these weights (safetensors, PyTorch's names)", 5},
    {"save", KEY_SAVE, "FILE", 0, "Write the weights after every epoch and at the end", 5},
    {"log", KEY_LOG, "FILE.jsonl", 0,
     "Write a JSON line a step and an evaluation; starling-plot draws it", 5},
    {"checkpoint", KEY_CHECKPOINT, "DIR", 0,
     "Write all that a run needs to go on, to the bit, into this folder; also when interrupted", 5},
    {"checkpoint-every", KEY_CHECKPOINT_EVERY, "N|Nmin", 0,
     "Steps between two, or minutes: 10min (default: an epoch's steps)", 5},
    {"keep", KEY_KEEP, "K", 0, "Keep the newest K checkpoints (default 3)", 5},
    {"resume", KEY_RESUME, NULL, 0,
     "Go on from the newest whole checkpoint; from the beginning where there is none", 5},
    {"trace", KEY_TRACE, "DIR", 0,
     "Record which device did what when, and draw it into this folder at the end", 5},
    {"trace-steps", KEY_TRACE_STEPS, "A-B", 0, "Record these steps alone (default 11-20)", 5},

    HEADER("Output:", 6),
    {"summary", KEY_SUMMARY, NULL, 0,
     "Print layers, owners of the parameters and memory before training", 6},
    {"quiet", 'q', NULL, 0, "Print nothing but errors", 6},
    {0}};

bool cli_let_first_speak(void) {
  int rank;
  return sl_launched(&rank) < 2 || !rank || sleep(3) == 0;
}

void cli_refuse(const struct argp_state *state, const char *format, ...) {
  va_list list;
  cli_let_first_speak();
  va_start(list, format);
  fprintf(stderr, "%s: ", state->name);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  exit(EXIT_USAGE);
}

int64_t cli_whole(const struct argp_state *state, const char *option, const char *text,
                  int64_t least, int64_t most) {
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  int64_t value = strtoll(text, NULL, 10);
  if (digits == 0 || text[digits] != '\0' || errno == ERANGE || value < least || value > most)
    cli_refuse(state, "%s '%s': must be a whole number from %lld to %lld", option, text,
               (long long)least, (long long)most);
  return value;
}

double cli_real(const struct argp_state *state, const char *option, const char *text, double least,
                double most) {
  char *end;
  double value = strtod(text, &end);
  /* strtod also takes blanks, hexadecimal, "inf" and "nan": no option has a use for them */
  if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text) || *end != '\0' ||
      !(value >= least && value <= most))
    cli_refuse(state, "%s '%s': must be a number from %g to %g", option, text, least, most);
  return value;
}

static uint64_t read_seed(const struct argp_state *state, const char *text) {
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  uint64_t value = strtoull(text, NULL, 10);
  if (digits == 0 || text[digits] != '\0' || errno == ERANGE)
    cli_refuse(state, "--seed '%s': must be a whole number from 0 to 2^64 - 1", text);
  return value;
}

/* "100-120", from 1 on */
static void read_steps(const struct argp_state *state, const char *text, struct cli *cli) {
  const int64_t most = 1000000000;
  char first[24];
  size_t digits = strspn(text, "0123456789");
  if (!digits || digits >= sizeof first || text[digits] != '-')
    cli_refuse(state, "--trace-steps '%s': must be like 100-120", text);
  snprintf(first, digits + 1, "%s", text);
  cli->trace_first = cli_whole(state, "--trace-steps", first, 1, most);
  cli->trace_last = cli_whole(state, "--trace-steps", text + digits + 1, cli->trace_first, most);
}

/* "200" steps, or "10min" */
static void read_interval(const struct argp_state *state, const char *text, struct cli *cli) {
  static const char unit[] = "min";
  const char *option = "--checkpoint-every";
  char number[32];
  size_t length = strlen(text);
  bool minutes = length >= strlen(unit) && !strcmp(text + length - strlen(unit), unit);
  cli->checkpoint_every = 0;
  cli->checkpoint_minutes = 0;
  if (!minutes) {
    cli->checkpoint_every = cli_whole(state, option, text, 1, 1000000000);
    return;
  }
  snprintf(number, sizeof number, "%.*s", (int)(length - strlen(unit)), text);
  cli->checkpoint_minutes = cli_real(state, option, number, 1e-5, 1e6);
}

static const char *read_name(const struct argp_state *state, const char *option, const char *text) {
  if (*text == '\0') cli_refuse(state, "%s: the name is empty", option);
  return text;
}

/* The library's own words for what it does not know. */
static void must(const struct argp_state *state, const char *option, enum sl_status status) {
  if (status != SL_OK) cli_refuse(state, "%s: %s", option, sl_error());
}

static void make_optimizer(struct cli *cli, const struct argp_state *state) {
  struct sl_optimizer *optimizer = &cli->optimizer;
  const struct sl_optimizer own = *optimizer; /* the program's defaults, for its kind */
  *optimizer = (struct sl_optimizer){0};
  must(state, "--optimizer", sl_optimizer_parse(cli->optimizer_name, optimizer));
  if (optimizer->kind == own.kind) {
    optimizer->lr = own.lr;
    optimizer->weight_decay = own.weight_decay;
    if (own.momentum > 0) optimizer->momentum = own.momentum;
  }
  if (cli->lr >= 0) optimizer->lr = (float)cli->lr;
  if (cli->momentum >= 0) optimizer->momentum = (float)cli->momentum;
  if (cli->weight_decay >= 0) optimizer->weight_decay = (float)cli->weight_decay;
  if (cli->clip >= 0) optimizer->clip = (float)cli->clip;
  must(state, "--optimizer", sl_optimizer_check(optimizer));
}

bool cli_is_automatic(const struct cli *cli) {
  return cli->placement && !strcmp(cli->placement, "auto");
}

bool cli_splits_itself(const struct cli *cli) { return cli->split && !strcmp(cli->split, "auto"); }

static void check_checkpoint(struct cli *cli, const struct argp_state *state) {
  if (!cli->checkpoint &&
      (cli->checkpoint_every || cli->checkpoint_minutes > 0 || cli->keep || cli->resume))
    cli_refuse(state, "--checkpoint-every, --keep, --resume: they belong to --checkpoint DIR");
  if (cli->checkpoint_minutes > 0 &&
      (cli->kvstore == SL_KVSTORE_DIST_ASYNC || cli->kvstore == SL_KVSTORE_DIST_ASYNC_DEVICE))
    cli_refuse(state,
               "--checkpoint-every %gmin: ranks out of step (dist_async) meet after a number of "
               "steps; name one",
               cli->checkpoint_minutes);
  if (!cli->keep) cli->keep = 3;
}

/* What only all options together can tell. */
static void check_all(struct cli *cli, const struct argp_state *state) {
  struct sl_schedule schedule;
  make_optimizer(cli, state);
  must(state, "--lr-schedule", sl_schedule_parse(cli->lr_schedule, 1000000, &schedule));
  bool automatic = cli_is_automatic(cli); /* --stages: at most so many */
  if ((cli->stages != 0 && !automatic) + (cli->placement != NULL) + (cli->placement_file != NULL) >
      1)
    cli_refuse(state,
               "--stages, --placement and --placement-file: each says where layers run; "
               "give one of them");
  if ((cli->servers || cli->bigarray_bound || cli->compress) && cli->kvstore < SL_KVSTORE_DIST_SYNC)
    cli_refuse(state, "--servers, --bigarray-bound, --compress: only with --kvstore dist_...");
  if (cli->exchange && cli->kvstore < SL_KVSTORE_DIST_SYNC)
    cli_refuse(state, "--exchange: only with --kvstore dist_...");
  if (cli->max_staleness && cli->kvstore != SL_KVSTORE_DIST_ASYNC &&
      cli->kvstore != SL_KVSTORE_DIST_ASYNC_DEVICE)
    cli_refuse(state, "--max-staleness: only with --kvstore dist_async");
  if (automatic && cli->kvstore >= SL_KVSTORE_DIST_SYNC)
    cli_refuse(state, "--placement auto: not over ranks yet; name the devices");
  if (cli_splits_itself(cli) && (cli->stages || cli->placement || cli->placement_file))
    cli_refuse(state,
               "--split auto: --stages and --placement say where layers run; give weights (--split "
               "4,1) or leave them out");
  if (automatic && cli->split && strcmp(cli->split, "even") != 0)
    cli_refuse(state,
               "--split and --placement auto: replicas get devices that are alike then; "
               "leave --split out");
  check_checkpoint(cli, state);
  if (cli->trace_first && !cli->trace)
    cli_refuse(state, "--trace-steps: it belongs to --trace DIR");
  if (cli->swap && !cli->memory_limit)
    cli_refuse(state, "--swap: it belongs to --memory-limit, which says what main memory holds");
  if (cli->log && cli->save && strcmp(cli->log, cli->save) == 0)
    cli_refuse(state, "--log and --save: both name %s; the one would overwrite the other",
               cli->log);
}

struct input {
  struct cli *cli;
  const struct argp *own;
  void *own_input;
};

/* The program's own parser; what it takes is noted. */
static error_t parse_own(int key, char *text, struct argp_state *state) {
  struct input *input = state->input;
  state->input = input->own_input;
  error_t error = input->own->parser(key, text, state);
  state->input = input;
  const struct argp_option *option = input->own->options;
  for (int i = 0; !error && i < CLI_MOST_OWN && (option[i].name || option[i].doc); i++)
    if (option[i].name && option[i].key == key) input->cli->own_text[i] = text ? text : "";
  return error;
}

/* Each of the following takes the options of one group; false: it is none of them. */

static bool parse_data(int key, const char *text, struct cli *cli, const struct argp_state *state) {
  switch (key) {
    case KEY_DATA: cli->data = read_name(state, "--data", text); break;
    case KEY_BATCH: cli->batch = cli_whole(state, "--batch", text, 1, 1000000); break;
    case KEY_NO_SHUFFLE: cli->shuffle = false; break;
    case KEY_AUGMENT: cli->augment = true; break;
    case KEY_NO_AUGMENT: cli->augment = false; break;
    default: return false;
  }
  return true;
}

static bool parse_training(int key, const char *text, struct cli *cli,
                           const struct argp_state *state) {
  switch (key) {
    case KEY_EPOCHS: cli->epochs = cli_whole(state, "--epochs", text, 1, 1000000); break;
    case KEY_STEPS: cli->steps = cli_whole(state, "--steps", text, 1, 1000000000); break;
    case KEY_SEED: cli->seed = read_seed(state, text); break;
    case KEY_INIT: must(state, "--init", sl_init_parse(text, &cli->init)); break;
    case KEY_OPTIMIZER: cli->optimizer_name = text; break;
    case KEY_LR: cli->lr = cli_real(state, "--lr", text, 1e-12, 1000); break;
    case KEY_MOMENTUM: cli->momentum = cli_real(state, "--momentum", text, 0, 0.9999); break;
    case KEY_WEIGHT_DECAY:
      cli->weight_decay = cli_real(state, "--weight-decay", text, 0, 10);
      break;
    case KEY_LR_SCHEDULE: cli->lr_schedule = text; break;
    case KEY_CLIP: cli->clip = cli_real(state, "--clip", text, 0, 1e9); break;
    default: return false;
  }
  return true;
}

static bool parse_devices(int key, const char *text, struct cli *cli,
                          const struct argp_state *state) {
  switch (key) {
    case KEY_DEVICES: cli->devices = read_name(state, "--devices", text); break;
    case KEY_REPLICAS: cli->replicas = (int)cli_whole(state, "--replicas", text, 1, 4096); break;
    case KEY_MICROBATCHES:
      cli->microbatches = (int)cli_whole(state, "--microbatches", text, 1, 4096);
      break;
    case KEY_SPLIT: cli->split = read_name(state, "--split", text); break;
    case KEY_STAGES: cli->stages = (int)cli_whole(state, "--stages", text, 1, 4096); break;
    case KEY_PLACEMENT: cli->placement = read_name(state, "--placement", text); break;
    case KEY_PLACEMENT_FILE:
      cli->placement_file = read_name(state, "--placement-file", text);
      break;
    case KEY_KVSTORE:
      must(state, "--kvstore", sl_kvstore_parse(text, &cli->kvstore));
      cli->has_kvstore = true;
      break;
    case KEY_MATH: must(state, "--math", sl_math_parse(text, &cli->math)); break;
    case KEY_TUNE: cli->tune = true; break;
    case KEY_MEMORY_LIMIT: cli->memory_limit = read_name(state, "--memory-limit", text); break;
    case KEY_SWAP: cli->swap = read_name(state, "--swap", text); break;
    case KEY_STALL_TIMEOUT:
      cli->stall_timeout = cli_real(state, "--stall-timeout", text, 0, 1e6);
      break;
    default: return false;
  }
  return true;
}

static bool parse_ranks(int key, const char *text, struct cli *cli,
                        const struct argp_state *state) {
  switch (key) {
    case KEY_SERVERS: cli->servers = (int)cli_whole(state, "--servers", text, 0, 100000); break;
    case KEY_BIGARRAY_BOUND:
      cli->bigarray_bound = cli_whole(state, "--bigarray-bound", text, 1, 500000000);
      break;
    case KEY_COMPRESS: cli->compress = read_name(state, "--compress", text); break;
    case KEY_MAX_STALENESS:
      cli->max_staleness = (int)cli_whole(state, "--max-staleness", text, 1, 1000000);
      break;
    case KEY_EXCHANGE: must(state, "--exchange", sl_exchange_parse(text, &cli->exchange)); break;
    case KEY_TIMEOUT: cli->timeout = cli_real(state, "--timeout", text, 0, 1e6); break;
    default: return false;
  }
  return true;
}

static bool parse_files(int key, const char *text, struct cli *cli,
                        const struct argp_state *state) {
  switch (key) {
    case KEY_LOAD: cli->load = read_name(state, "--load", text); break;
    case KEY_SAVE: cli->save = read_name(state, "--save", text); break;
    case KEY_LOG: cli->log = read_name(state, "--log", text); break;
    case KEY_CHECKPOINT: cli->checkpoint = read_name(state, "--checkpoint", text); break;
    case KEY_CHECKPOINT_EVERY: read_interval(state, text, cli); break;
    case KEY_KEEP: cli->keep = cli_whole(state, "--keep", text, 1, 1000000); break;
    case KEY_RESUME: cli->resume = true; break;
    case KEY_TRACE: cli->trace = read_name(state, "--trace", text); break;
    case KEY_TRACE_STEPS: read_steps(state, text, cli); break;
    default: return false;
  }
  return true;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct input *input = state->input;
  struct cli *cli = input->cli;
  switch (key) {
    case ARGP_KEY_INIT:
      if (state->root_argp->children) state->child_inputs[0] = input;
      break;
    case KEY_SUMMARY: cli->summary = true; break;
    case 'q': cli->quiet = true; break;
    case ARGP_KEY_ARG:
      cli_refuse(state, "'%s': not understood; all input is given by options, see --help", text);
    case ARGP_KEY_END: check_all(cli, state); break;
    default:
      if (parse_data(key, text, cli, state) || parse_training(key, text, cli, state) ||
          parse_devices(key, text, cli, state) || parse_ranks(key, text, cli, state) ||
          parse_files(key, text, cli, state))
        break;
      return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

void cli_default(struct cli *cli) {
  *cli = (struct cli){.data = "digits",
                      .batch = 64,
                      .shuffle = true,
                      .epochs = 0,
                      .seed = 1,
                      .optimizer_name = "sgd",
                      .lr_schedule = "constant",
                      .lr = -1,
                      .momentum = -1,
                      .weight_decay = -1,
                      .clip = -1,
                      .timeout = 60,
                      .stall_timeout = 60};
}

/* The name without its folder, and without the "lt-" of libtool's wrappers. */
const char *cli_name(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  return strncmp(name, "lt-", 3) == 0 ? name + 3 : name;
}

void cli_parse(struct cli *cli, const char *about, const struct argp *own, void *own_input,
               int argc, char **argv) {
  struct argp noted = own ? *own : (struct argp){0};
  struct argp_child children[] = {{&noted, 0, "The network:", 0}, {0}};
  struct argp argp = {options, parse_option, NULL, about, own ? children : NULL, NULL, NULL};
  struct input input = {cli, own, own_input};
  noted.parser = parse_own;
  cli->own = own ? own->options : NULL;
  argp_err_exit_status = EXIT_USAGE;
  argv[0] = (char *)cli_name(argv[0]);
  argp_parse(&argp, argc, argv, 0, NULL, &input);
}
