package fleet

// showDistrust tells people whether the engine's cache is used.
func (w *Watcher) showDistrust() {
	cause := ""
	if w.process.epoch.Load() > 0 {
		cause = "it may have cached wrong blocks: restart it when you can"
	}
	for _, m := range w.Members() {
		w.setState(m.ID, StateDistrusted, cause)
	}
}

// distrust makes all that the engine has cached so far unreachable, in whichever pool it stands.
func (w *Watcher) distrust(cause error) {
	epoch := w.process.epoch.Add(1)
	for _, x := range w.fleet.keep.all() {
		if x.process != w.process {
			continue
		}
		for _, m := range x.Members() {
			x.pool.Forget(m.ID)
		}
		x.showDistrust()
	}
	w.fleet.distrusted.WithLabelValues(w.role.String(), w.Name()).Inc()
	if epoch > 1 { // it has been said, and holds until the restart
		w.log.Debug("a distrusted decode engine may have cached wrong blocks again", "replica", w.Name(), "era",
			epoch, "error", cause)
		return
	}
	w.log.Error("a decode engine may have cached wrong blocks; its requests are salted until it is restarted, "+
		"so that it uses none of them: restart it when you can, "+
		"and see that its lease and its machine are not too short "+
		"of time", "replica", w.Name(), "era", epoch, "error", cause)
}
