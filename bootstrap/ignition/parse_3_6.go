package ignition

import (
	"encoding/json"
	"reflect"

	"github.com/coreos/ignition/v2/config/v3_6"
	types3_6 "github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/coreos/ignition/v2/config/validate"
)

// version3_6 is the newest spec version. It has the fields of 3.5 and accepts more values.
const version3_6 = "3.6.0"

// parse3_6 reads a document of spec 3.6 as Config. A value that only 3.6 accepts is an error: Config is served to
// hosts whose Ignition can be older.
func parse3_6(raw []byte) (Config, error) {
	newer, entries, err := v3_6.Parse(raw)
	if err != nil {
		var types types3_6.Config
		if typeErr := json.Unmarshal(raw, &types); typeErr != nil {
			return Config{}, decodeError(raw, typeErr, reflect.TypeOf(types))
		}
		if problems := fatalProblems(entries); len(problems) > 0 {
			return Config{}, &ParseError{Problems: problems}
		}
		return Config{}, newParseError("", err.Error())
	}
	var config Config
	convert(reflect.ValueOf(&config).Elem(), reflect.ValueOf(newer))
	config.Ignition.Version = Version
	problems := fatalProblems(validate.ValidateWithContext(config, raw))
	for i := range problems {
		problems[i].Message += ": Ignition accepts this from spec 3.6 on, and the Ignition of a host can be older: use a value of spec 3.5"
	}
	if len(problems) > 0 {
		return Config{}, &ParseError{Problems: problems}
	}
	return config, nil
}
