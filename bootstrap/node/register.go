package node

import "errors"

// Register works out what a Node is registered with. Errors are *ConflictError, *InvalidError, *OutsidePoolError, and
// *pool.NotRegistrableError for a pool whose selector can't be turned into labels.
func Register(in Input) (Registration, error) {
	return Registration{}, errors.New("not yet")
}
