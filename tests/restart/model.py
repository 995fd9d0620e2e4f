FOLLOWS = {
    "intent": {"intent", "calling", "cancelled"},
    "calling": {"calling", "verifying", "failed", "uncertain", "cancelled"},
    "verifying": {"verifying", "helped", "did_not_help", "uncertain"},
    "uncertain": {"uncertain", "helped", "did_not_help", "verifying"},
    "helped": {"helped"}, "did_not_help": {"did_not_help"}, "failed": {"failed"}, "cancelled": {"cancelled"}, "dry_run": {"dry_run"},
}
