// What came before: other incidents of the same target, how often it recurs, and when it was at its worst.

const EARLIER_SECONDS = 3600;
const EARLIER_MOST = 4;

/** What began before it on its target and has ended, within the last hour before it, the latest first: id, title, from and to in Unix seconds. */
export function earlier({ target, began_timestamp_seconds: began, opened_timestamp_seconds: opened }, all) {
  const start = began ?? opened;
  if (start === null) return [];
  return all.of(target)
    .map((each) => ({ id: each.id, title: each.title, from: each.began_timestamp_seconds ?? each.opened_timestamp_seconds, to: each.ended_timestamp_seconds ?? each.resolved_timestamp_seconds }))
    .filter(({ from, to }) => from !== null && to !== null && from < start && start - to <= EARLIER_SECONDS)
    .sort((a, b) => b.from - a.from)
    .slice(0, EARLIER_MOST);
}

/** "3% of its usual throughput", of that and how many wait. */
const share = (text) => text?.split(", with ")[0];

/** Was it worse than its summary says? */
const wasWorse = ({ worst: most, updated_timestamp_seconds: t, evidence }) => Boolean(most?.evidence.text) && most.t !== t && share(most.evidence.text) !== share(evidence.for[0]?.text);

/** When it was at its worst, where that is not what the summary says. `moment` writes a time. */
export function worst(incident, moment) {
  return wasWorse(incident) ? `Worst: ${incident.worst.evidence.text} (${moment(incident.worst.t)})` : "";
}

/** How bad it was, of what is over. */
export const lasted = (incident) => (wasWorse(incident) ? `Worst: ${incident.worst.evidence.text}` : incident.summary);

/** How often it came, where it recurs; of one that came twice, what came earlier is told by name. */
export const often = ({ recurring }) => (recurring ? `, ${recurring.text}` : "");
