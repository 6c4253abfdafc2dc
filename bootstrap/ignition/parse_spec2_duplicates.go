package ignition

import (
	"slices"

	types2_4 "github.com/coreos/ignition/config/v2_4/types"
)

// removeDuplicates keeps the last of duplicate files, units, users and certificate authorities of a spec 2 document, as
// hosts with spec 2 do; spec 3 refuses duplicates. Like the Machine Config Operator, it keeps all drop-ins of units and
// all SSH keys of users. Files that append are left to the converter.
func removeDuplicates(config types2_4.Config) types2_4.Config {
	config.Storage.Files = keepLast(config.Storage.Files, func(file types2_4.File) (string, bool) { return file.Path, !file.Append },
		func(*types2_4.File, types2_4.File) {})
	config.Systemd.Units = keepLast(config.Systemd.Units, func(unit types2_4.Unit) (string, bool) { return unit.Name, true },
		func(over *types2_4.Unit, earlier types2_4.Unit) {
			for _, dropin := range earlier.Dropins {
				same := func(other types2_4.SystemdDropin) bool { return other.Name == dropin.Name }
				if !slices.ContainsFunc(over.Dropins, same) {
					over.Dropins = append(slices.Clip(over.Dropins), dropin)
				}
			}
		})
	config.Passwd.Users = keepLast(config.Passwd.Users, func(user types2_4.PasswdUser) (string, bool) { return user.Name, true },
		func(over *types2_4.PasswdUser, earlier types2_4.PasswdUser) {
			over.SSHAuthorizedKeys = append(slices.Clip(over.SSHAuthorizedKeys), earlier.SSHAuthorizedKeys...)
		})
	tls := &config.Ignition.Security.TLS
	tls.CertificateAuthorities = keepLast(tls.CertificateAuthorities, func(ca types2_4.CaReference) (string, bool) { return ca.Source, true },
		func(*types2_4.CaReference, types2_4.CaReference) {})
	for i := range config.Passwd.Users {
		user := &config.Passwd.Users[i]
		user.SSHAuthorizedKeys = keepLast(user.SSHAuthorizedKeys, func(key types2_4.SSHAuthorizedKey) (string, bool) { return string(key), true },
			func(*types2_4.SSHAuthorizedKey, types2_4.SSHAuthorizedKey) {})
	}
	return config
}

// keepLast keeps the last entry of each key, at the position of the first, with what keep copies from the earlier ones.
// An entry whose key does not count is always kept.
func keepLast[Entry any](entries []Entry, keyOf func(Entry) (key string, counts bool), keep func(over *Entry, earlier Entry)) []Entry {
	var out []Entry
	at := map[string]int{}
	for _, entry := range entries {
		key, counts := keyOf(entry)
		if i, ok := at[key]; ok && counts {
			keep(&entry, out[i])
			out[i] = entry
			continue
		}
		if counts {
			at[key] = len(out)
		}
		out = append(out, entry)
	}
	return out
}
