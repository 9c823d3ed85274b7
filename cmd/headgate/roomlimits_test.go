package main

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// Every setting reaches a room, and none reaches two fields by mistake: each is
// given a value of its own, and each value has to come out somewhere.
func TestEveryLimitReachesItsRoom(t *testing.T) {
	elsewhere := map[string]bool{"ShutdownTimeout": true} // of the server's own life, serve takes it as it is
	var l Limits
	settings := reflect.ValueOf(&l).Elem()
	values := make(map[int64]string)
	for i := range settings.NumField() {
		value := int64(1000 + i)
		if field, ok := settings.Field(i).Addr().Interface().(*Duration); ok {
			field.Duration = time.Duration(value)
		} else {
			settings.Field(i).SetInt(value)
		}
		values[value] = settings.Type().Field(i).Name
	}
	reached := make(map[string]bool)
	for _, room := range []any{l.ofHTTP(), l.ofHTTP().FairLimits, l.ofStore(), l.ofStore().PushLimits, l.ofGit(), l.ofPebble()} {
		fields := reflect.ValueOf(room)
		for i := range fields.NumField() {
			var value int64
			switch f := fields.Field(i); {
			case f.CanInt():
				value = f.Int()
			case f.CanUint():
				value = int64(f.Uint())
			}
			if value != 0 {
				reached[values[value]] = true
			}
		}
	}
	for _, name := range values {
		if !reached[name] && !elsewhere[name] {
			t.Errorf("setting %s reaches no room", name)
		}
	}
}

func TestDefaultLimitsHold(t *testing.T) {
	if err := defaultLimits().check(); err != nil {
		t.Errorf("the default limits are refused: %v", err)
	}
	for i, v := 0, reflect.ValueOf(defaultLimits()); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("limit %s has no default", v.Type().Field(i).Name)
		}
	}
}

func TestEverySessionLimitReachesTheKeeper(t *testing.T) {
	var l SessionLimits
	settings := reflect.ValueOf(&l).Elem()
	for i := range settings.NumField() {
		if field, ok := settings.Field(i).Addr().Interface().(*Duration); ok {
			field.Duration = time.Duration(1000 + i)
		} else {
			settings.Field(i).SetInt(int64(1000 + i))
		}
	}
	got := make(map[int64]bool)
	for i, v := 0, reflect.ValueOf(l.ofKeeper()); i < v.NumField(); i++ {
		got[v.Field(i).Int()] = true
	}
	for i := range settings.NumField() {
		if !got[int64(1000+i)] {
			t.Errorf("setting %s does not reach the keeper", settings.Type().Field(i).Name)
		}
	}
}

func TestSessionLimits(t *testing.T) {
	if err := defaultSessionLimits().check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for key, break_ := range map[string]func(*SessionLimits){
		"lease_ttl":  func(l *SessionLimits) { l.LeaseTTL = Duration{48 * time.Hour} },
		"token_ttl":  func(l *SessionLimits) { l.TokenTTL = Duration{} },
		"max_fork_n": func(l *SessionLimits) { l.MaxForkN = 0 },
		"max_live":   func(l *SessionLimits) { l.MaxLive = -1 },
		"ended_for":  func(l *SessionLimits) { l.EndedFor = Duration{time.Minute} },
	} {
		l := defaultSessionLimits()
		break_(&l)
		if err := l.check(); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("bad %s: %v, want an error that begins with the name", key, err)
		}
	}
}
