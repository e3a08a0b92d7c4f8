#include "tools/train/evaluation.h"

#include <math.h>
#include <stdio.h>

#include "tools/train/failure.h"
#include "tools/train/ranks.h"
#include "tools/train/saving.h"

static double value_of(const struct sl_evaluation *evaluation, const char *name) {
  const struct sl_metric *metric = sl_evaluation_metric(evaluation, name);
  return metric ? metric->value : NAN;
}

/* Losses of targets have metrics of the whole epoch; ranks in common steps have none. */
static enum sl_status evaluate(struct session *session) {
  struct test_result *test = &session->test;
  struct sl_evaluation *evaluation;
  bool in_step = ranks_wanted(&session->cli) && !ranks_are_async(&session->cli);
  *test = (struct test_result){NAN, NAN, NAN, NAN, NAN, NAN};
  if (sl_loss_takes_labels(&session->loss) || in_step) {
    enum sl_status status =
        sl_trainer_evaluate(session->trainer, session->test_loader, &test->loss, &test->accuracy);
    if (!sl_loss_takes_labels(&session->loss)) test->accuracy = NAN;
    return status;
  }
  enum sl_status status = sl_trainer_measure(session->trainer, session->test_loader, &evaluation);
  if (status != SL_OK) return status;
  *test = (struct test_result){.loss = evaluation->loss,
                               .accuracy = value_of(evaluation, "accuracy"),
                               .mae = value_of(evaluation, "mae"),
                               .rmse = value_of(evaluation, "rmse"),
                               .r2 = value_of(evaluation, "r2"),
                               .auc = value_of(evaluation, "auc")};
  sl_evaluation_free(evaluation);
  return SL_OK;
}

/* What the test line has behind the loss. */
static const char *result_text(const struct test_result *test, char *text, size_t size) {
  *text = '\0';
  if (!isnan(test->rmse))
    snprintf(text, size, "  test RMSE %.4g  R2 %.4f", test->rmse, test->r2);
  else if (!isnan(test->auc))
    snprintf(text, size, "  test accuracy %.2f %%  AUC %.4f", 100 * test->accuracy, test->auc);
  else if (!isnan(test->accuracy))
    snprintf(text, size, "  test accuracy %.2f %%", 100 * test->accuracy);
  return text;
}

int evaluation_run(struct session *session, int64_t epoch) {
  char text[96];
  enum sl_status status = evaluate(session);
  if (status != SL_OK) return session_fail_library(session, status);
  double train = session->epoch_loss / session->epoch_terms;
  if (sl_dataset_info(session->test_set)->tokens)
    progress_print(
        &session->progress, "epoch %lld/%lld  train perplexity %.3f  validation perplexity %.3f",
        (long long)epoch, (long long)session->epochs, exp(train), exp(session->test.loss));
  else
    progress_print(&session->progress, "epoch %lld/%lld  train loss %.4f  test loss %.4f%s",
                   (long long)epoch, (long long)session->epochs, train, session->test.loss,
                   result_text(&session->test, text, sizeof text));
  int error = log_evaluation(session->log, epoch, &session->test);
  return error ? session_fail_file(session, session->own_log, error) : EXIT_DONE;
}

int evaluation_again(struct session *session) {
  progress_print(&session->progress, "Nothing is left to train");
  enum sl_status status = evaluate(session);
  return status == SL_OK ? saving_weights(session) : session_fail_library(session, status);
}
