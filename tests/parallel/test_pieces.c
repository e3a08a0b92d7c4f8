/* With a swap folder, blocks of parameters are cut into pieces of one tensor, not into tensors of
 * their own. A training has the same bits then, however many pieces there are. */
#include "tests/common/files.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { COUNT = 40, IN = 4, OUT = 3, BATCH = 8, STEPS = 7, HIDDEN = 500, VALUES = 5000 };

static float inputs[COUNT][IN], targets[COUNT][OUT];

struct result {
  double loss[STEPS], evaluated;
  float weights[VALUES], averages[VALUES];
};

static void make_data(void) {
  uint32_t state = 3;
  for (int i = 0; i < COUNT * IN; i++) {
    state = state * 1664525 + 1013904223;
    inputs[i / IN][i % IN] = (float)(state >> 8) / 8388608.0f - 1;
  }
  for (int i = 0; i < COUNT; i++)
    for (int c = 0; c < OUT; c++) targets[i][c] = inputs[i][c] * inputs[i][IN - 1];
}

static struct sl_model *new_network(void) {
  struct sl_model *model = new_model(SL_SHAPE(IN));
  add_dense(model, "d1", HIDDEN, SL_INIT_DEFAULT);
  OK(sl_activate(model, "tanh", &(struct sl_activation_options){.activation = SL_ACTIVATION_TANH}));
  add_dense(model, "d2", OUT, SL_INIT_DEFAULT);
  return model;
}

/* In a context of its own, whose swap folder is this one; NULL: without. */
static void train(const char *swap, const struct sl_optimizer *optimizer,
                  const struct sl_trainer_options *options, struct result *result) {
  const struct sl_dataset_options of_set = {
      .name = "values", .sample = SL_SHAPE(IN), .target = SL_SHAPE(OUT), .count = COUNT};
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  double accuracy;
  assert_int_equal(
      open_context_with(&(struct sl_context_options){
          .seed = 1, .memory_limit = swap ? "cpu=1G" : NULL, .swap = swap, .stall_timeout = 20}),
      0);
  struct sl_model *model = new_network();
  OK(sl_dataset_floats(&of_set, inputs[0], targets[0], NULL, false, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(model, optimizer, NULL, options, &trainer));
  take_steps(trainer, loader, STEPS, result->loss);
  OK(sl_loader_seek(loader, 0));
  OK(sl_trainer_evaluate(trainer, loader, &result->evaluated, &accuracy));
  read_weights(model, result->weights, VALUES);
  if (optimizer->average > 0) {
    OK(sl_trainer_swap_average(trainer));
    read_weights(model, result->averages, VALUES);
    OK(sl_trainer_swap_average(trainer));
  }
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
  sl_close(context);
}

/* 2, 9, 10, 25 pieces of the first layer: a task with many of them has more buffers than StarPU's
 * own arrays. */
static void pieces_change_no_bit(void **state) {
  (void)state;
  static const int64_t shards[] = {1300, 312, 275, 100};
  static const struct sl_optimizer optimizers[] = {
      {.lr = 0.05f}, {.lr = 0.05f, .momentum = 0.9f, .average = 0.5f, .clip = 0.1f}};
  const char *swap = in_folder("swap");
  OK(sl_folder_make(swap));
  for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++)
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++)
      for (int eager = 0; eager < 2; eager++) {
        static struct result whole, pieces;
        struct sl_trainer_options options = {
            .loss = {.kind = SL_LOSS_MSE}, .replicas = 1, .big_shard = shards[s], .eager = eager};
        memset(&whole, 0, sizeof whole);
        memset(&pieces, 0, sizeof pieces);
        train(NULL, &optimizers[o], &options, &whole);
        train(swap, &optimizers[o], &options, &pieces);
        if (memcmp(&whole, &pieces, sizeof whole) != 0)
          fail_msg("optimizer %zu, pieces of %lld, eager %d: other bits", o, (long long)shards[s],
                   eager);
      }
}

int main(void) {
  make_data();
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_change_no_bit)};
  return cmocka_run_group_tests_name("pieces", tests, folder_setup, folder_teardown);
}
