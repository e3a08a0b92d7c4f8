/* Threads that do a job's rounds together: each round is some parts, and begins when all parts of
 * the one before have ended. Nobody is waited for who has not taken a part: the leader does what
 * nobody else does, and who comes late takes part from then on. Waiting is spinning, since rounds
 * are microseconds. */
#ifndef SL_CORE_GRAPH_TEAM_H
#define SL_CORE_GRAPH_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include <starling/base.h>

enum { SL__TEAM_MOST = 16, SL__TEAM_PARTS = 64 };

struct sl__round {
  int parts;     /* 1 (the leader does it) to SL__TEAM_PARTS */
  bool may_join; /* its parts may be done as one where nobody else is there */
  int members;   /* among whom the parts are shared out at first, one run of them each; 0: nobody */
};

/* One part of a round, of `parts` (which is 1 where they were joined). member: who does it: two at
 * the same time are never the same. */
typedef void sl__team_work(void *job, int round, int part, int parts, int member);

struct sl__team;

/* rounds [count] are copied. */
enum sl_status sl__team_new(int count, const struct sl__round *rounds, sl__team_work *work,
                            struct sl__team **team);
void sl__team_free(struct sl__team *team);

/* Do the job as that member (0 to SL__TEAM_MOST - 1), with who joins; nobody of them is in it any
 * more when it returns. One at a time. */
void sl__team_lead(struct sl__team *team, int member, void *job);

/* Take part in the job as that member, if the leader or somebody else is not, until it ends; or in
 * none, if none is expected, or the one that is does not begin within so long. A member's share of
 * the parts comes first: what they need may still be in its caches. */
void sl__team_join(struct sl__team *team, int member, double patience_us);

/* There will be a job: until one ends who joins waits for it, with patience. */
void sl__team_expect(struct sl__team *team);

#endif
