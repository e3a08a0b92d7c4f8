/* A team: threads that do a job together, in supersteps. A superstep consists of parts, and begins
 * when all parts of the one before have ended. The leader waits only for members that have taken a
 * part: it does the parts that no other member takes, and a member that comes late takes parts from
 * then on. Waiting is spinning, since supersteps take microseconds. */
#ifndef SL_CORE_GRAPH_TEAM_H
#define SL_CORE_GRAPH_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include <starling/base.h>

enum { SL__TEAM_MOST = 16, SL__TEAM_PARTS = 64 };

struct sl__superstep {
  int parts;      /* 1 (the leader does it) to SL__TEAM_PARTS */
  bool may_merge; /* a leader without other members may do all parts as one */
  int members;    /* each of them first takes its own parts; 0: none are a member's own */
  /* Its own parts are dealt out, forwards and backwards in turns (of three members the first one
   * has 0, 5, 6, ...); else they are a run of parts. */
  bool is_interleaved;
};

/* Does one part of a superstep, of `parts` (1 if they are merged), as that member. Two threads at a
 * time never have the same member number. */
typedef void sl__team_work(void *job, int superstep, int part, int parts, int member);

struct sl__team;

/* supersteps [count] are copied. */
enum sl_status sl__team_new(int count, const struct sl__superstep *supersteps, sl__team_work *work,
                            struct sl__team **team);
void sl__team_free(struct sl__team *team);

/* Do the job as that member (0 to SL__TEAM_MOST - 1), together with the members that join; all of
 * them have left it when this returns. One job at a time. */
void sl__team_lead(struct sl__team *team, int member, void *job);

/* Take part in the job as that member until it ends. Returns at once if no job is expected, and
 * after timeout_us if the job has not begun or has that member already. A member takes its own
 * parts first: their data may still be in its caches. */
void sl__team_join(struct sl__team *team, int member, double timeout_us);

/* A job will begin: members that join wait for it. */
void sl__team_expect(struct sl__team *team);
bool sl__team_is_expected(const struct sl__team *team);

#endif
