#include "tools/train/cli.h"

#include <string.h>
#include <unistd.h>

static const char exit_status[] =
    "0 done, or interrupted with a checkpoint written; 1 failed; 2 bad usage. Without --checkpoint "
    "a "
    "run that a signal interrupts saves its weights and ends by that signal.";

static const struct option_manual manual = {
    .environment =
        "STARPU_NCPU, STARPU_NCUDA: numbers of workers.\n\n"
        "STARPU_SCHED: StarPU's scheduler.\n\n"
        "STARPU_HOME: folder of StarPU's performance models and of what --tune remembers.\n\n"
        "StarPU's other variables hold, too. OPENBLAS_NUM_THREADS=1 keeps StarPU's workers from "
        "competing with threads of OpenBLAS.",
    .files =
        "FILE.jsonl of --log: a JSON object a line: one about the run, one a step and an "
        "evaluation, one about the end.\n\n"
        "DIR/checkpoint-STEP.safetensors, DIR/manifest.json of --checkpoint: all that a run "
        "needs to go on, and lengths and checksums of these files.\n\n"
        "DIR/trace.svg, trace.png, trace.txt, trace.json of --trace: what starling-trace made "
        "of it; over ranks each in DIR/rankN.",
    .see_also =
        "starling-plot(1), starling-predict(1), starling-report(1), starling-run(1), "
        "starling-trace(1), starling-train(1), starling-tune(1)"};

bool cli_let_first_speak(void) {
  int rank;
  return sl_launched(&rank) < 2 || !rank || sleep(3) == 0;
}

static void let_first_speak(void) { cli_let_first_speak(); }

void cli_default(struct cli *cli) {
  *cli = (struct cli){.data = "digits",
                      .batch = 64,
                      .shuffle = true,
                      .seed = 1,
                      .optimizer_name = "sgd",
                      .lr_schedule = "constant",
                      .lr = -1,
                      .momentum = -1,
                      .weight_decay = -1,
                      .clip = -1,
                      .timeout = -1,
                      .stall_timeout = 60};
}

struct option_set cli_set(const struct cli *cli) {
  return (struct option_set){.rows = cli_rows, .count = cli_row_count, .values = (struct cli *)cli};
}

struct checked {
  struct cli *cli;
  const struct cli_program *program;
};

static const char *check(void *input) {
  const struct checked *checked = input;
  const struct cli_program *program = checked->program;
  const char *why = program->check ? program->check(program->input) : NULL;
  return why ? why : cli_check(checked->cli);
}

static const char *beside(void *input, const char *weights, int index, char *path, size_t size) {
  const struct cli_program *program = ((const struct checked *)input)->program;
  return program->beside ? program->beside(program->input, weights, index, path, size) : NULL;
}

/* A word that is no option is the value of a row of the program's. */
static int take_argument(void *input, char **words, int count, const char **why) {
  const struct checked *checked = input;
  const struct cli_program *program = checked->program;
  size_t i = 0;
  (void)count;
  while (strcmp(program->rows[i].name, program->argument) != 0) i++;
  if (checked->cli->own_given[i])
    *why = option_problem("'%s': not understood; %s is given already: '%s'", words[0],
                          program->usage, checked->cli->own_given[i]);
  else
    *why = option_take(&program->rows[i], words[0], program->input);
  checked->cli->own_given[i] = words[0];
  return 1;
}

void cli_parse(struct cli *cli, const struct cli_program *program, int argc, char **argv) {
  struct checked checked = {cli, program};
  cli->own = (struct option_set){.rows = program->rows,
                                 .count = program->row_count,
                                 .values = program->input,
                                 .title = "The network:",
                                 .given = cli->own_given};
  const struct option_program options = {.usage = program->usage,
                                         .about = program->about,
                                         .description = program->description,
                                         .exit_status = exit_status,
                                         .examples = program->examples,
                                         .manual = manual,
                                         .sets = {cli->own, cli_set(cli)},
                                         .input = &checked,
                                         .argument = program->argument ? take_argument : NULL,
                                         .check = check,
                                         .beside = beside,
                                         .before_refusal = let_first_speak};
  option_parse(&options, argc, argv);
}
