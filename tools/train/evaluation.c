#include "tools/train/evaluation.h"

#include <math.h>

#include "tools/train/failure.h"
#include "tools/train/saving.h"

int evaluation_run(struct session *session, int64_t epoch) {
  enum sl_status status = sl_trainer_evaluate(session->trainer, session->test_loader,
                                              &session->test_loss, &session->test_accuracy);
  if (status != SL_OK) return session_fail_library(session, status);
  if (sl_dataset_info(session->test_set)->tokens)
    progress_print(
        &session->progress, "epoch %lld/%lld  train perplexity %.3f  validation perplexity %.3f",
        (long long)epoch, (long long)session->epochs,
        exp(session->epoch_loss / (double)session->epoch_samples), exp(session->test_loss));
  else
    progress_print(&session->progress,
                   "epoch %lld/%lld  train loss %.4f  test loss %.4f  test accuracy %.2f %%",
                   (long long)epoch, (long long)session->epochs,
                   session->epoch_loss / (double)session->epoch_samples, session->test_loss,
                   100 * session->test_accuracy);
  int error = log_evaluation(session->log, epoch, session->test_loss, session->test_accuracy);
  return error ? session_fail_file(session, session->own_log, error) : EXIT_DONE;
}

int evaluation_again(struct session *session) {
  progress_print(&session->progress, "Nothing is left to train");
  enum sl_status status = sl_trainer_evaluate(session->trainer, session->test_loader,
                                              &session->test_loss, &session->test_accuracy);
  return status == SL_OK ? saving_weights(session) : session_fail_library(session, status);
}
